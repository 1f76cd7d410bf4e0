"""Preprocessing of MNIST and its like; the same for training and evaluation."""

import tensorflow as tf

from slim.preprocessing import contract


class Mnist(contract.Batched):
  """Centres the image in a square and scales it to [-1, +1].

  Larger images are cropped, smaller ones padded with the darkest value. Nothing
  is random.
  """

  def train(
    self, images: tf.Tensor, seeds: tf.Tensor, image_size: int
  ) -> tf.Tensor:
    """See `contract.Batched.train`; the result is in [-1, +1]."""
    del seeds
    scaled = tf.cast(images, tf.float32) / 255.0
    square = tf.image.resize_with_crop_or_pad(scaled, image_size, image_size)
    return (square - 0.5) * 2.0

  def evaluate(
    self, images: tf.Tensor, seeds: tf.Tensor, image_size: int
  ) -> tf.Tensor:
    """The same as `train`."""
    return self.train(images, seeds, image_size)


class Lenet(contract.Batched):
  """Centres the image in a square and scales it as slim does for LeNet."""

  def train(
    self, images: tf.Tensor, seeds: tf.Tensor, image_size: int
  ) -> tf.Tensor:
    """See `contract.Batched.train`; the result is (x - 128) / 128."""
    del seeds
    square = tf.image.resize_with_crop_or_pad(images, image_size, image_size)
    return (tf.cast(square, tf.float32) - 128.0) / 128.0

  def evaluate(
    self, images: tf.Tensor, seeds: tf.Tensor, image_size: int
  ) -> tf.Tensor:
    """The same as `train`."""
    return self.train(images, seeds, image_size)


MNIST = Mnist()
LENET = Lenet()
