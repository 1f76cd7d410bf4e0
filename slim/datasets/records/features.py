"""Serialized tf.train.Example with the keys of the 2017 records.

Features is a map, of which protobuf promises no order. It is asked for one, so
that equal conversions have equal SHA-256.
"""

from collections import abc

import tensorflow as tf

IMAGE = 'image/encoded'


def of_bytes(*values: bytes) -> tf.train.Feature:
  """A list of byte strings."""
  return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))


def of_ints(*values: int) -> tf.train.Feature:
  """A list of int64."""
  return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def of_floats(*values: float) -> tf.train.Feature:
  """A list of float32."""
  return tf.train.Feature(float_list=tf.train.FloatList(value=values))


def of_boxes(
  boxes: abc.Sequence[tuple[float, float, float, float]] = (),
) -> dict[str, tf.train.Feature]:
  """The four lists of sides of boxes.

  Args:
    boxes: (xmin, ymin, xmax, ymax) each, relative to the image, in [0, 1].

  Returns:
    Features by key, empty lists where there is no box.
  """
  xmin, ymin, xmax, ymax = zip(*boxes, strict=True) if boxes else [()] * 4
  sides = {'xmin': xmin, 'xmax': xmax, 'ymin': ymin, 'ymax': ymax}
  return {
    f'image/object/bbox/{side}': of_floats(*values)
    for side, values in sides.items()
  }


def of_image(
  image_format: bytes, size: tuple[int, int, int], label: int, text: str
) -> dict[str, tf.train.Feature]:
  """What every record says of its image, but for the image.

  As in 2017 the colorspace says RGB even where there is one channel, so that
  one parser serves all data sets.

  Args:
    image_format: b'png', b'JPEG' or b'RAW'.
    size: height, width and channels.
    label: the class.
    text: its name.

  Returns:
    Features by key.
  """
  height, width, channels = size
  return {
    'image/format': of_bytes(image_format),
    'image/class/label': of_ints(label),
    'image/class/text': of_bytes(text.encode()),
    'image/height': of_ints(height),
    'image/width': of_ints(width),
    'image/channels': of_ints(channels),
    'image/colorspace': of_bytes(b'RGB'),
  }


def serialize(features: abc.Mapping[str, tf.train.Feature]) -> bytes:
  """Serializes an example.

  Args:
    features: by key.

  Returns:
    A tf.train.Example.
  """
  return tf.train.Example(
    features=tf.train.Features(feature=features)
  ).SerializeToString(deterministic=True)


class Template:
  """Serializes examples that differ in image/encoded alone.

  A serialized map is its entries one after the other: so
  that what stays equal is serialized once. For small images the rest would cost
  more time than compressing the image.
  """

  def __init__(self, features: abc.Mapping[str, tf.train.Feature]):
    """Serializes what stays equal.

    Args:
      features: all but image/encoded.
    """
    rest = tf.train.Features(feature=features)
    self._rest = rest.SerializeToString(deterministic=True)

  def serialize(self, encoded: bytes) -> bytes:
    """Serializes an example.

    Args:
      encoded: the image.

    Returns:
      A tf.train.Example.
    """
    entry = tf.train.Features(feature={IMAGE: of_bytes(encoded)})
    content = self._rest + entry.SerializeToString()
    # On the wire an Example is as this list: field 1, its length, its bytes.
    return tf.train.BytesList(value=[content]).SerializeToString()
