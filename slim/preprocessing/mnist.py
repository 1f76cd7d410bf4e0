"""Preprocessing of MNIST and its like; the same for training and evaluation."""

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
    scale: makes of values in [0, 255], float32, those to deliver.
  """

  scale: Callable[[tf.Tensor], tf.Tensor]

  def train(
    self, images: tf.Tensor, seeds: tf.Tensor, image_size: int
  ) -> tf.Tensor:
    """See `contract.Batched.train`."""
    del seeds
    square = tf.image.resize_with_crop_or_pad(images, image_size, image_size)
    return self.scale(tf.cast(square, tf.float32))

  def evaluate(
    self, images: tf.Tensor, seeds: tf.Tensor, image_size: int
  ) -> tf.Tensor:
    """The same as `train`."""
    return self.train(images, seeds, image_size)


# The 2017 trainer's: to [-1, +1].
MNIST = Centred(lambda pixels: (pixels / 255.0 - 0.5) * 2.0)
# slim's for LeNet.
LENET = Centred(lambda pixels: (pixels - 128.0) / 128.0)
