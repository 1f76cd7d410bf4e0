"""CIFAR-10's preprocessing, of the 2017 trainer and of slim."""

import dataclasses

import tensorflow as tf

from slim import errors
from slim.preprocessing import contract
from slim.preprocessing import draws

_CONTRAST = (0.2, 1.8)  # factors


@dataclasses.dataclass(frozen=True)
class Cifar(contract.Batched):
  """Preprocessing of small photographs.

  Attributes:
    padding: pixels of zeros added at each side before the random crop.
    brightest: the value to which 255 is scaled.
    brightness: maximum change of brightness, in the units of `brightest`.
  """

  padding: int
  brightest: float
  brightness: float

  def train(
    self, images: tf.Tensor, seeds: tf.Tensor, image_size: int
  ) -> tf.Tensor:
    """Crops, mirrors, and changes brightness and contrast, in this order.

    Args:
      images: uint8 [B, H, W, C].
      seeds: int64 [B, 2].
      image_size: height and width of the crop in pixels, at most H and W plus
        padding.

    Returns:
      float32 [B, image_size, image_size, C], mean 0 and variance 1 in each
      image.
    """
    numbers = tf.map_fn(
      lambda seed: draws.uniform(seed, 5), seeds, fn_output_signature=tf.float32
    )
    y, x, mirror, bright, contrast = tf.unstack(numbers, axis=1)
    pad = [self.padding] * 2
    padded = tf.pad(images, [[0, 0], pad, pad, [0, 0]])
    cut = _crop(padded, y, x, mirror, image_size)
    scaled = tf.cast(cut, tf.float32) * (self.brightest / 255.0)
    bright = draws.between(bright, -self.brightness, self.brightness)
    scaled += bright[:, None, None, None]
    mean = tf.reduce_mean(scaled, [1, 2], keepdims=True)
    factor = draws.between(contrast, *_CONTRAST)[:, None, None, None]
    return tf.image.per_image_standardization((scaled - mean) * factor + mean)

  def evaluate(
    self, images: tf.Tensor, seeds: tf.Tensor, image_size: int
  ) -> tf.Tensor:
    """Centres each image in a square; scales it to mean 0 and variance 1."""
    del seeds
    square = tf.image.resize_with_crop_or_pad(images, image_size, image_size)
    scaled = tf.cast(square, tf.float32) * (self.brightest / 255.0)
    return tf.image.per_image_standardization(scaled)


def _crop(
  images: tf.Tensor,
  y: tf.Tensor,
  x: tf.Tensor,
  mirror: tf.Tensor,
  image_size: int,
) -> tf.Tensor:
  """Crops a square at a random position per image; mirrors half of them."""
  message = (
    'image_size: expected at most {}, the stored size with its padding; '
    f'received {image_size}. Choose a smaller size.'
  )
  shape = tf.shape(images)
  smallest = tf.reduce_min(shape[1:3])
  if images.shape[1:3].is_fully_defined():
    if image_size > min(images.shape[1:3]):
      raise errors.DataError(message.format(min(images.shape[1:3])))
  else:
    text = tf.strings.format(message, smallest)
    with tf.control_dependencies(
      [tf.debugging.Assert(image_size <= smallest, [text])]
    ):
      images = tf.identity(images)
  steps = tf.range(image_size)
  rows = draws.index(y, shape[1] - image_size + 1)[:, None] + steps
  columns = tf.where(mirror[:, None] < 0.5, steps[::-1], steps)
  columns += draws.index(x, shape[2] - image_size + 1)[:, None]
  cut = tf.gather(images, rows, axis=1, batch_dims=1)
  return tf.gather(cut, columns, axis=2, batch_dims=1)


# The 2017 trainer's preprocessing: values in [0, 1].
CIFAR10 = Cifar(padding=0, brightest=1.0, brightness=63 / 255)
# slim's preprocessing: values in [0, 255].
CIFARNET = Cifar(padding=4, brightest=255.0, brightness=63.0)
