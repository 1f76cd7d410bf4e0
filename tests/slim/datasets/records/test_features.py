import numpy as np
import pytest
import tensorflow as tf

from slim.datasets.records import features


@pytest.mark.parametrize('size', [0, 1, 100, 127, 128, 20_000, 3_000_000])
def test_a_template_makes_what_serializing_all_makes(size):
  encoded = bytes(size)
  rest = features.image_features(b'png', (28, 28, 1), 3, 'three')
  rest |= features.box_features()
  serialized = features.Template(rest).serialize(encoded)
  example = tf.train.Example.FromString(serialized)
  expected = tf.train.Example.FromString(
    features.serialize(
      {**rest, 'image/encoded': features.bytes_feature(encoded)}
    )
  )
  assert example == expected
  # TensorFlow's own parser is another one than protobuf's.
  parsed = tf.io.parse_single_example(
    serialized,
    {
      'image/encoded': tf.io.FixedLenFeature([], tf.string),
      'image/class/label': tf.io.FixedLenFeature([], tf.int64),
    },
  )
  assert parsed['image/encoded'] == encoded
  assert parsed['image/class/label'] == 3


def test_features_are_serialized_in_the_order_of_their_keys():
  """Whatever the order in which they were made, and in every process."""
  found = (
    features.image_features(b'JPEG', (3, 4, 3), 1, 'x')
    | features.box_features()
  )
  turned = dict(reversed(found.items()))
  for make in (
    features.serialize,
    lambda rest: features.Template(rest).serialize(b''),
  ):
    serialized = make(found)
    assert make(turned) == serialized
    offsets = [serialized.index(key.encode()) for key in sorted(found)]
    assert offsets == sorted(offsets)


def test_boxes_become_lists_of_sides():
  boxes = features.box_features([(0.1, 0.2, 0.3, 0.4), (0.5, 0.6, 0.7, 0.8)])
  values = {
    key: list(feature.float_list.value) for key, feature in boxes.items()
  }
  expected = {
    'image/object/bbox/xmin': [0.1, 0.5],
    'image/object/bbox/ymin': [0.2, 0.6],
    'image/object/bbox/xmax': [0.3, 0.7],
    'image/object/bbox/ymax': [0.4, 0.8],
  }
  assert values.keys() == expected.keys()
  for key, sides in expected.items():
    np.testing.assert_allclose(values[key], sides, rtol=1e-7)
