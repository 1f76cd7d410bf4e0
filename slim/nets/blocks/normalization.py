"""Local response normalization, which Keras does not have."""

from typing import Any

import keras
import tensorflow as tf


@keras.saving.register_keras_serializable(package='slim')
class LocalResponseNormalization(keras.layers.Layer):
  """Divides by (bias + alpha * sum of squares over near channels) ** beta.

  Takes and returns [B, height, width, channels] of the layer's dtype. Computes
  in float32, because TensorFlow has no bfloat16 kernel for CPUs and squares
  overflow float16.

  Args:
    depth_radius: number of channels on each side in the sum.
    bias: added to the sum, > 0.
    alpha: factor of the sum. If a paper gives the factor of the mean, divide it
      by the window's 2 * depth_radius + 1 channels.
    beta: exponent.
    **options: of `keras.layers.Layer`.

  References:
    Krizhevsky et al., ImageNet Classification with Deep Convolutional Neural
    Networks, NIPS 2012, section 3.3.
  """

  def __init__(
    self,
    depth_radius: int,
    bias: float,
    alpha: float,
    beta: float,
    **options: Any,
  ) -> None:
    """Sets the parameters; takes the options of `keras.layers.Layer`."""
    super().__init__(**options)
    self.numbers = {
      'depth_radius': depth_radius,
      'bias': bias,
      'alpha': alpha,
      'beta': beta,
    }

  def call(self, images: tf.Tensor) -> tf.Tensor:
    """Normalizes images across their channels."""
    normalized = tf.nn.local_response_normalization(
      tf.cast(images, tf.float32), **self.numbers
    )
    return tf.cast(normalized, images.dtype)

  def get_config(self) -> dict[str, Any]:
    """Returns the arguments that create an equal layer."""
    return {**super().get_config(), **self.numbers}
