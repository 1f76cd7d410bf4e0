"""Preprocessing of MNIST and its like; the same for training and evaluation."""

import tensorflow as tf

from slim.preprocessing import contract


def preprocess(image: tf.Tensor, seed: tf.Tensor, image_size: int) -> tf.Tensor:
  """Centres the image in a square and scales it to [-1, +1].

  Args:
    image: uint8 [..., H, W, C], one image or a batch.
    seed: int64 [..., 2]. Not used, nothing is random here; every
      preprocessing takes it.
    image_size: height and width of the result in pixels. Larger images are
      cropped, smaller ones padded with the darkest value.

  Returns:
    float32 [..., image_size, image_size, C] in [-1, +1].
  """
  del seed
  scaled = tf.cast(image, tf.float32) / 255.0
  square = tf.image.resize_with_crop_or_pad(scaled, image_size, image_size)
  return (square - 0.5) * 2.0


def lenet(image: tf.Tensor, seed: tf.Tensor, image_size: int) -> tf.Tensor:
  """Centres the image in a square and scales it as slim does for LeNet.

  Args:
    image: uint8 [..., H, W, C], one image or a batch.
    seed: int64 [..., 2]. Not used.
    image_size: height and width of the result in pixels.

  Returns:
    float32 [..., image_size, image_size, C], (x - 128) / 128.
  """
  del seed
  square = tf.image.resize_with_crop_or_pad(image, image_size, image_size)
  return (tf.cast(square, tf.float32) - 128.0) / 128.0


MNIST = contract.Batched(preprocess, preprocess)
LENET = contract.Batched(lenet, lenet)
