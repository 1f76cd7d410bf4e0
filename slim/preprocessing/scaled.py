"""AlexNet's, VGG's and Caffe2's preprocessing: scale, crop, mirror, normalize.

In training, only the pixels of the square are decoded and resized, so its
position is a whole number of stored pixels. The code of 2017 resized the whole
image and then cropped at a whole number of resized pixels. Evaluation does what
2017 did, except that it drops the ends of long strips, which the square does
not reach. Resizing is bilinear with half-pixel centres (2017: corners).
"""

import functools
import math
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from slim import errors
from slim.preprocessing import contract
from slim.preprocessing import draws
from slim.preprocessing import photographs

_CHANNELS = 3
# Means of ImageNet's training images, in [0, 255]: red, green, blue.
_IMAGENET_MEAN = (123.68, 116.78, 103.94)
# Maximum ratio of the sides that evaluation resizes: a strip of 1 x 1,000,000
# pixels, scaled to 256 x 256,000,000, would take 786 GB.
_MAX_ASPECT = 16
# Evaluation resizes the whole image: 4096 x 4096 pixels take 200 MB, and
# _MAX_ASPECT times as much for a strip.
_MAX_SCALE = 4096


class Scaling(NamedTuple):
  """How to convert a photograph to a square.

  Attributes:
    sides: smallest and largest length to which training scales the shorter
      side, in pixels; it draws one of them.
    side: length to which evaluation scales the shorter side, in pixels.
    keeps_aspect: False scales both sides to the same length.
    mirrors: whether training mirrors half of the images.
    mean: subtracted from the channels, in [0, 255].
    std: divisor of the result, in the same units.
  """

  sides: tuple[int, int]
  side: int
  keeps_aspect: bool = True
  mirrors: bool = True
  mean: tuple[float, ...] = _IMAGENET_MEAN
  std: float = 1.0


def preprocessing(scaling: Scaling) -> contract.Single:
  """Returns the preprocessing with this scaling."""
  return contract.Single(
    functools.partial(_train, scaling), functools.partial(_evaluate, scaling)
  )


def image_input(
  *,
  mean: float = 128.0,
  std: float = 128.0,
  scale: int = 256,
  mirror: bool = True,
) -> contract.Single:
  """Returns Caffe2's image input; the crop has the requested image size.

  Args:
    mean: mean of all channels, in [0, 255].
    std: standard deviation, > 0, in the same units.
    scale: length to which the shorter side is scaled, in pixels, at most 4096.
    mirror: whether training mirrors half of the images.

  Returns:
    Its preprocessing: random crops in training, the centre in evaluation.

  Raises:
    ValueError: a number is out of its range.
  """
  is_usable = std > 0 and math.isfinite(mean + std)
  if not (is_usable and 1 <= scale <= _MAX_SCALE):
    raise ValueError(
      'preprocessing caffe2: expected a finite mean, std > 0 and scale from 1 '
      f'to {_MAX_SCALE}, received mean={mean}, std={std}, scale={scale}. '
      'Correct these options.'
    )
  return preprocessing(
    Scaling((scale, scale), scale, mirrors=mirror, mean=(mean,), std=std)
  )


def _train(
  scaling: Scaling,
  photograph: photographs.Photograph,
  seed: tf.Tensor,
  image_size: int,
) -> tf.Tensor:
  """Crops a random square and may mirror it, as `contract.Step`."""
  y, x, side, mirror = tf.unstack(draws.uniform(seed, 4))
  low, high = scaling.sides
  _check(image_size, low)
  length = low + draws.index(side, high - low + 1)
  # Number of stored pixels per pixel of the result.
  step = _source_size(scaling, photograph) / tf.cast(length, tf.float32)
  extent = tf.cast(tf.round(image_size * step), tf.int32)
  extent = tf.clip_by_value(extent, 1, photograph.size)
  free = photograph.size - extent + 1
  corner = draws.index(tf.stack([y, x]), free)
  pixels = photograph.crop(tf.concat([corner, extent], 0))
  resized = photographs.resize(pixels, image_size)
  image = _normalised(scaling, resized, image_size)
  if scaling.mirrors:
    # Mirror last: the window has more pixels than the result.
    image = photographs.flip(image, mirror < 0.5)
  return image


def _evaluate(
  scaling: Scaling,
  photograph: photographs.Photograph,
  seed: tf.Tensor,
  image_size: int,
) -> tf.Tensor:
  """Crops the central square, as `contract.Step`."""
  del seed
  _check(image_size, scaling.side)
  step = _source_size(scaling, photograph) / float(scaling.side)
  window = _evaluation_window(scaling, photograph.size)
  size = tf.cast(tf.cast(window[2:], tf.float32) / step, tf.int32)
  size = tf.maximum(size, image_size)
  resized = tf.image.resize(photograph.crop(window), size)
  y, x = tf.unstack((size - image_size) // 2)
  square = resized[y : y + image_size, x : x + image_size]
  return _normalised(scaling, square, image_size)


def _evaluation_window(scaling: Scaling, size: tf.Tensor) -> tf.Tensor:
  """Returns the window that evaluation resizes: y, x, height, width; int32 [4].

  It is the whole image, or the middle of a long strip. Both ends of a strip
  lose the same number of pixels, so that the square has the same position.
  """
  if not scaling.keeps_aspect:
    return tf.concat([[0, 0], size], 0)
  excess = tf.maximum(size - _MAX_ASPECT * tf.reduce_min(size), 0)
  corner = excess // 2
  return tf.concat([corner, size - 2 * corner], 0)


def _source_size(
  scaling: Scaling, photograph: photographs.Photograph
) -> tf.Tensor:
  """Returns height and width that are scaled to `side`, float32 [2]."""
  size = tf.cast(photograph.size, tf.float32)
  if not scaling.keeps_aspect:
    return size
  return tf.repeat(tf.reduce_min(size), 2)


def _normalised(
  scaling: Scaling, pixels: tf.Tensor, image_size: int
) -> tf.Tensor:
  """Subtracts the mean and divides by the standard deviation."""
  square = [image_size, image_size, _CHANNELS]
  # A mean of the image's shape: TensorFlow takes ten times as long to broadcast
  # three numbers to an image, and twice as long for a row of them.
  mean = np.resize(np.asarray(scaling.mean, np.float32), square)
  image = tf.ensure_shape(pixels, square) - mean
  if scaling.std != 1:
    image /= scaling.std
  return image


def _check(image_size: int, side: int) -> None:
  if image_size > side:
    raise errors.DataError(
      f'image_size: expected at most {side}, the length of the scaled shorter '
      f'side; received {image_size}. Choose a smaller size.'
    )


ALEXNET = preprocessing(Scaling((256, 256), 256, keeps_aspect=False))
VGG = preprocessing(Scaling((256, 512), 256))
CAFFE2 = image_input()
