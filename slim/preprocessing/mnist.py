"""Preprocessing of MNIST and variants, equal in training and evaluation."""

import dataclasses
from collections.abc import Callable

import tensorflow as tf

from slim.preprocessing import contract


@dataclasses.dataclass(frozen=True)
class Centred(contract.Batched):
  """Centres the image in a square and scales it.

  Larger images are cropped, smaller ones padded with the darkest value. Nothing
  is random.

  Attributes:
    scale: converts pixel values, float32 in [0, 255], to the values to
      deliver.
  """

  scale: Callable[[tf.Tensor], tf.Tensor]

  def train(
    self, images: tf.Tensor, seeds: tf.Tensor, image_size: int
  ) -> tf.Tensor:
    """Centres and scales a batch; arguments as in `contract.Batched.train`."""
    del seeds
    square = tf.image.resize_with_crop_or_pad(images, image_size, image_size)
    return self.scale(tf.cast(square, tf.float32))

  def evaluate(
    self, images: tf.Tensor, seeds: tf.Tensor, image_size: int
  ) -> tf.Tensor:
    """Centres and scales a batch, as `train` does."""
    return self.train(images, seeds, image_size)


# The 2017 trainer's preprocessing: to [-1, +1].
MNIST = Centred(lambda pixels: (pixels / 255.0 - 0.5) * 2.0)
# slim's preprocessing for LeNet: to [-1, +1).
LENET = Centred(lambda pixels: (pixels - 128.0) / 128.0)
