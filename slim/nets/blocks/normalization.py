"""Local response normalization, which Keras does not have."""

from typing import Any

import keras
import tensorflow as tf


@keras.saving.register_keras_serializable(package='slim')
class LocalResponseNormalization(keras.layers.Layer):
  """Divides by (bias + alpha * sum of squares over near channels) ** beta.

  Takes and returns [B, height, width, channels] of the layer's dtype; computes
  in float32, since TensorFlow has no kernel of bfloat16 for CPUs and squares
  overflow float16.

  Args:
    depth_radius: channels on each side that count.
    bias: added to the sum, > 0.
    alpha: factor of the sum; over the window's 2 * depth_radius + 1 channels
      where a paper gives the factor of their mean.
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
    """Keeps the numbers."""
    super().__init__(**options)
    self.numbers = {
      'depth_radius': depth_radius,
      'bias': bias,
      'alpha': alpha,
      'beta': beta,
    }

  def call(self, images: tf.Tensor) -> tf.Tensor:
    """Normalizes."""
    normalized = tf.nn.local_response_normalization(
      tf.cast(images, tf.float32), **self.numbers
    )
    return tf.cast(normalized, images.dtype)

  def get_config(self) -> dict[str, Any]:
    """The arguments that make this layer again."""
    return {**super().get_config(), **self.numbers}
