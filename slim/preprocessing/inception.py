"""Inception's preprocessing: a random crop, resized, with changed colours.

Szegedy et al., Going Deeper with Convolutions, https://arxiv.org/abs/1409.4842,
as in the code of 2017. There the resizing method and the order of the colour
changes depended on the thread; here they are random. Resizing uses half-pixel
centres (2017: corners).
"""

import functools

import tensorflow as tf

from slim.preprocessing import colours
from slim.preprocessing import contract
from slim.preprocessing import draws
from slim.preprocessing import photographs

_MIN_OBJECT_COVERED = 0.1  # fraction of one of the boxes
_ASPECT_RATIOS = (0.75, 1.33)  # width / height
_AREAS = (0.05, 1.0)  # fractions of the image
_ATTEMPTS = 100
_CENTRE = 0.875  # fraction of height and width that evaluation uses
_METHODS = ('bilinear', 'nearest', 'bicubic', 'area')
_BRIGHTNESS = 32 / 255
_SATURATION = (0.5, 1.5)
_HUE = 0.2  # turns
_CONTRAST = (0.5, 1.5)


def _train(
  is_fast: bool,
  photograph: photographs.Photograph,
  seed: tf.Tensor,
  image_size: int,
) -> tf.Tensor:
  """Crops, resizes, mirrors and changes the colours, as `contract.Step`.

  `is_fast` resizes only bilinearly, and changes neither hue nor contrast.
  """
  return colours.distort(*_crop(is_fast, photograph, seed, image_size))


def _crop(
  is_fast: bool,
  photograph: photographs.Photograph,
  seed: tf.Tensor,
  image_size: int,
) -> tuple[tf.Tensor, tf.Tensor]:
  """Crops, resizes and mirrors; returns the arguments of `colours.distort`."""
  pixels = photograph.crop(_window(photograph, seed))
  number = draws.uniform(seed, 6)
  # One draw for method and order, like the thread number of 2017.
  thread = draws.index(number[0], len(_METHODS))
  pixels = photographs.flip(pixels, number[1] < 0.5)
  if is_fast:
    resized = photographs.resize(pixels, image_size)
  else:
    resized = _resize_by(thread, pixels, image_size)
  contrast = draws.between(number[5], *_CONTRAST)
  contrast_comes_first = tf.equal(thread % 2, 1)
  changes = tf.stack(
    [
      draws.between(number[2], -_BRIGHTNESS, _BRIGHTNESS),
      tf.where(contrast_comes_first, contrast, 1.0),
      draws.between(number[3], *_SATURATION),
      draws.between(number[4], -_HUE, _HUE),
      tf.where(contrast_comes_first, 1.0, contrast),
    ]
  )
  if is_fast:
    changes *= tf.constant([1.0, 0.0, 1.0, 0.0, 0.0])
    changes += tf.constant([0.0, 1.0, 0.0, 0.0, 1.0])
  return resized, changes


def _evaluate(
  photograph: photographs.Photograph, seed: tf.Tensor, image_size: int
) -> tf.Tensor:
  """Resizes the centre and scales it to [-1, +1], as `contract.Step`."""
  del seed
  size = tf.cast(photograph.size, tf.float32)
  corner = tf.cast((size - size * _CENTRE) / 2.0, tf.int32)
  window = tf.concat([corner, photograph.size - 2 * corner], 0)
  resized = photographs.resize(photograph.crop(window), image_size)
  return (resized / 255.0 - 0.5) * 2.0


def _window(photograph: photographs.Photograph, seed: tf.Tensor) -> tf.Tensor:
  """Returns a random window on an object: y, x, height, width; int32 [4]."""
  begin, extent, _ = tf.image.stateless_sample_distorted_bounding_box(
    tf.concat([photograph.size, [3]], 0),
    photograph.boxes[None],
    # This seed's other numbers are used elsewhere.
    tf.random.experimental.stateless_fold_in(seed, 1),
    min_object_covered=_MIN_OBJECT_COVERED,
    aspect_ratio_range=_ASPECT_RATIOS,
    area_range=_AREAS,
    max_attempts=_ATTEMPTS,
    use_image_if_no_bounding_boxes=True,
  )
  return tf.concat([begin[:2], extent[:2]], 0)


def _resize_by(
  thread: tf.Tensor, pixels: tf.Tensor, image_size: int
) -> tf.Tensor:
  def resize(method: str) -> tf.Tensor:
    resized = tf.image.resize(pixels, [image_size, image_size], method)
    return tf.cast(resized, tf.float32)

  return tf.switch_case(
    thread, [functools.partial(resize, method) for method in _METHODS]
  )


INCEPTION = contract.Single(functools.partial(_train, False), _evaluate)
# slim's fast mode: bilinear only, and neither hue nor contrast.
INCEPTION_FAST = contract.Single(functools.partial(_train, True), _evaluate)
