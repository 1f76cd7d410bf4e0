"""Serialized tf.train.Example with the keys of the 2017 records.

Features is a map, which protobuf may serialize in any order. Deterministic
serialization fixes the order, so that equal conversions have equal SHA-256.
"""

from collections import abc

import tensorflow as tf

IMAGE = 'image/encoded'


def bytes_feature(*values: bytes) -> tf.train.Feature:
  """Returns a feature with a list of byte strings."""
  return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))


def int_feature(*values: int) -> tf.train.Feature:
  """Returns a feature with a list of int64."""
  return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def float_feature(*values: float) -> tf.train.Feature:
  """Returns a feature with a list of float32."""
  return tf.train.Feature(float_list=tf.train.FloatList(value=values))


def box_features(
  boxes: abc.Sequence[tuple[float, float, float, float]] = (),
) -> dict[str, tf.train.Feature]:
  """Returns the features of bounding boxes: a list for each side.

  Args:
    boxes: (xmin, ymin, xmax, ymax) each, relative to the image, in [0, 1].

  Returns:
    Features by key; the lists are empty if there is no box.
  """
  xmin, ymin, xmax, ymax = zip(*boxes, strict=True) if boxes else [()] * 4
  sides = {'xmin': xmin, 'xmax': xmax, 'ymin': ymin, 'ymax': ymax}
  return {
    f'image/object/bbox/{side}': float_feature(*values)
    for side, values in sides.items()
  }


def image_features(
  image_format: bytes, size: tuple[int, int, int], label: int, text: str
) -> dict[str, tf.train.Feature]:
  """Returns all features of an image except the encoded image.

  As in 2017, the colorspace is RGB even for one channel, so that one parser
  reads all data sets.

  Args:
    image_format: b'png', b'JPEG' or b'RAW'.
    size: height, width and channels; lengths in pixels.
    label: label of the class.
    text: name of the class.

  Returns:
    Features by key.
  """
  height, width, channels = size
  return {
    'image/format': bytes_feature(image_format),
    'image/class/label': int_feature(label),
    'image/class/text': bytes_feature(text.encode()),
    'image/height': int_feature(height),
    'image/width': int_feature(width),
    'image/channels': int_feature(channels),
    'image/colorspace': bytes_feature(b'RGB'),
  }


def serialize(features: abc.Mapping[str, tf.train.Feature]) -> bytes:
  """Serializes features, by key, as a tf.train.Example."""
  return tf.train.Example(
    features=tf.train.Features(feature=features)
  ).SerializeToString(deterministic=True)


class Template:
  """Serializes examples that differ only in image/encoded.

  A serialized map is the concatenation of its entries, so the constant
  entries are serialized once. For small images they would otherwise take more
  time than compressing the image.
  """

  def __init__(self, features: abc.Mapping[str, tf.train.Feature]):
    """Serializes the constant features.

    Args:
      features: all except image/encoded.
    """
    rest = tf.train.Features(feature=features)
    self._rest = rest.SerializeToString(deterministic=True)

  def serialize(self, encoded: bytes) -> bytes:
    """Serializes a tf.train.Example with this encoded image."""
    entry = tf.train.Features(feature={IMAGE: bytes_feature(encoded)})
    content = self._rest + entry.SerializeToString()
    # An Example has the wire format of this list: field 1, its length, data.
    return tf.train.BytesList(value=[content]).SerializeToString()
