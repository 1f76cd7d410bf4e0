"""Parses serialized tf.train.Example into images and labels.

The keys are those of 2017: `image/encoded`, `image/class/label`, and for
photographs also `image/format`, `image/height`, `image/width` and
`image/object/bbox/{xmin,xmax,ymin,ymax}`.
"""

from typing import NamedTuple

import tensorflow as tf

_IMAGE = 'image/encoded'
_LABEL = 'image/class/label'
_FEATURES = {
  _IMAGE: tf.io.FixedLenFeature([], tf.string),
  _LABEL: tf.io.FixedLenFeature([], tf.int64),
}
_FORMAT = 'image/format'
_SIZE = ('image/height', 'image/width')
# The order of TensorFlow's box arguments.
_BOX = tuple(
  f'image/object/bbox/{side}' for side in ('ymin', 'xmin', 'ymax', 'xmax')
)
_PHOTOGRAPH_FEATURES = (
  _FEATURES
  | {_FORMAT: tf.io.FixedLenFeature([], tf.string, '')}
  | dict.fromkeys(_SIZE, tf.io.FixedLenFeature([], tf.int64, -1))
  | dict.fromkeys(
    _BOX, tf.io.FixedLenSequenceFeature([], tf.float32, allow_missing=True)
  )
)


class Stored(NamedTuple):
  """An example as it is stored.

  Attributes:
    encoded: string [], content of the image file.
    image_format: string [], b'RAW' for pixels; else the content identifies it.
    size: int32 [2], height and width in pixels; -1 if unknown.
    boxes: float32 [n, 4], n >= 0: ymin, xmin, ymax, xmax, relative.
    label: int64 [].
  """

  encoded: tf.Tensor
  image_format: tf.Tensor
  size: tf.Tensor
  boxes: tf.Tensor
  label: tf.Tensor


def parse(serialized: tf.Tensor) -> Stored:
  """Parses one example.

  Args:
    serialized: string [], a tf.train.Example with at least image and label.

  Raises:
    tf.errors.InvalidArgumentError: when the op runs; the string is not an
      Example with these keys, or its boxes lack a side.
  """
  parsed = tf.io.parse_single_example(serialized, _PHOTOGRAPH_FEATURES)
  return Stored(
    encoded=parsed[_IMAGE],
    image_format=parsed[_FORMAT],
    size=tf.cast(tf.stack([parsed[key] for key in _SIZE]), tf.int32),
    boxes=tf.stack([parsed[key] for key in _BOX], axis=1),
    label=parsed[_LABEL],
  )


def check_labels(labels: tf.Tensor, num_classes: int) -> tf.Tensor:
  """Checks the range of int64 labels and returns them as int32.

  Raises:
    tf.errors.InvalidArgumentError: when the op runs; a label is not in
      [0, num_classes).
  """
  expected = f'expected labels in [0, {num_classes})'
  # In a tf.function or a tf.data stage, asserts run although nothing uses them.
  tf.debugging.assert_non_negative(labels, expected)
  tf.debugging.assert_less(labels, tf.constant(num_classes, tf.int64), expected)
  return tf.cast(labels, tf.int32)


def decode_png(
  serialized: tf.Tensor, image_shape: tuple[int, int, int], num_classes: int
) -> tuple[tf.Tensor, tf.Tensor]:
  """Decodes a batch of examples whose images are PNG of one size.

  One op decodes them one after another: as elements of a tf.data stage small
  images would cost more than their decoding.

  Args:
    serialized: string [B], each a tf.train.Example.
    image_shape: required height, width and channels of every image.
    num_classes: labels must be in [0, num_classes).

  Returns:
    images uint8 [B, height, width, channels], labels int32 [B].

  Raises:
    tf.errors.InvalidArgumentError: when the op runs; a string is not an
      Example with these keys, an image is not a PNG or has another size, or a
      label is out of range.
  """
  parsed = tf.io.parse_example(serialized, _FEATURES)
  # tf.io.decode_png also decodes JPEG, BMP and GIF.
  are_png = tf.strings.substr(parsed[_IMAGE], 0, 8) == b'\x89PNG\r\n\x1a\n'
  tf.debugging.Assert(tf.reduce_all(are_png), ['expected PNG files'])
  labels = check_labels(parsed[_LABEL], num_classes)

  def decode(png: tf.Tensor) -> tf.Tensor:
    image = tf.io.decode_png(png, channels=image_shape[-1])
    return tf.ensure_shape(image, image_shape)

  images = tf.map_fn(decode, parsed[_IMAGE], fn_output_signature=tf.uint8)
  return images, labels
