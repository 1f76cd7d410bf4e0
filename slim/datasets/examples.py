"""Serialized tf.train.Example to images and labels.

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
# The order in which TensorFlow takes them.
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
  """A photograph as it is stored.

  Attributes:
    encoded: string [], the file's content.
    image_format: string [], b'RAW' for pixels; else content tells.
    size: int32 [2], height and width in pixels; -1 where it is not known.
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
    serialized: string [], a tf.train.Example. All keys but image and label may
      be missing.

  Returns:
    What it holds.

  Raises:
    tf.errors.InvalidArgumentError: while running; not an Example with these
      keys, or its boxes lack a side.
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
  """Returns int64 labels as int32.

  Raises:
    tf.errors.InvalidArgumentError: while running; a label is not in
      [0, num_classes).
  """
  expected = f'expected labels in [0, {num_classes})'
  # Within a tf.function or a tf.data stage these run though nothing uses them.
  tf.debugging.assert_non_negative(labels, expected)
  tf.debugging.assert_less(labels, tf.constant(num_classes, tf.int64), expected)
  return tf.cast(labels, tf.int32)


def decode_png(
  serialized: tf.Tensor, image_shape: tuple[int, int, int], num_classes: int
) -> tuple[tf.Tensor, tf.Tensor]:
  """Decodes a batch of examples whose images are PNG of one size.

  Small images are decoded one after the other in one op: as elements of their
  own, a tf.data stage would cost more than the decoding.

  Args:
    serialized: string [B], each a tf.train.Example.
    image_shape: height, width and channels that every image must have.
    num_classes: labels must be in [0, num_classes).

  Returns:
    images uint8 [B, height, width, channels], labels int32 [B].

  Raises:
    tf.errors.InvalidArgumentError: while running; not an Example with these
      keys, not a PNG, another size, or a label out of range.
  """
  parsed = tf.io.parse_example(serialized, _FEATURES)
  labels = check_labels(parsed[_LABEL], num_classes)

  def decode(png: tf.Tensor) -> tf.Tensor:
    image = tf.io.decode_png(png, channels=image_shape[-1])
    return tf.ensure_shape(image, image_shape)

  images = tf.map_fn(decode, parsed[_IMAGE], fn_output_signature=tf.uint8)
  return images, labels
