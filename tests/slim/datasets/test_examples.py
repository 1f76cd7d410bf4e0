import numpy as np
import pytest
import tensorflow as tf

from slim.datasets import examples
from tests.slim import photograph_files
from tests.slim import record_files

IMAGES = np.random.default_rng(0).integers(0, 256, [5, 4, 6, 1], np.uint8)
PNGS = tf.io.encode_png(IMAGES).numpy()


def decode(serialized, shape=(4, 6, 1), num_classes=10):
  return examples.decode_png(tf.constant(serialized), shape, num_classes)


def test_images_and_labels_come_back():
  serialized = [record_files.example(png, 9 - i) for i, png in enumerate(PNGS)]
  images, labels = decode(serialized)
  assert (images.dtype, labels.dtype) == (tf.uint8, tf.int32)
  np.testing.assert_array_equal(images, IMAGES)
  np.testing.assert_array_equal(labels, [9, 8, 7, 6, 5])


def test_one_example_is_a_batch():
  images, labels = decode([record_files.example(PNGS[0], 0)])
  assert (images.shape, labels.shape) == ((1, 4, 6, 1), (1,))


@pytest.mark.parametrize('label', [-1, 10, 2**40])
def test_label_out_of_range_is_refused(label):
  serialized = [record_files.example(PNGS[0], value) for value in (0, label)]
  with pytest.raises(
    tf.errors.InvalidArgumentError, match=r'expected labels in \[0, 10\)'
  ):
    decode(serialized)


@pytest.mark.parametrize('label', [-1, 10])
def test_label_out_of_range_is_refused_in_a_tf_data_stage(label):
  stream = tf.data.Dataset.from_tensors([record_files.example(PNGS[0], label)])
  with pytest.raises(
    tf.errors.InvalidArgumentError, match=r'expected labels in \[0, 10\)'
  ):
    list(stream.map(lambda batch: examples.decode_png(batch, (4, 6, 1), 10)))


def test_image_of_another_size_is_refused():
  with pytest.raises(tf.errors.InvalidArgumentError, match=r'\[4,6,1\]'):
    decode([record_files.example(PNGS[0], 0)], shape=(6, 4, 1))


JPEG = tf.io.encode_jpeg(np.zeros([4, 6, 1], np.uint8)).numpy()


@pytest.mark.parametrize('png', [b'', b'no image', PNGS[0][:40], JPEG])
def test_other_content_than_png_is_refused(png):
  with pytest.raises(tf.errors.InvalidArgumentError):
    decode([record_files.example(png, 0)])


@pytest.mark.parametrize(
  'serialized', [b'no example', tf.train.Example().SerializeToString()]
)
def test_records_without_an_image_are_refused(serialized):
  with pytest.raises(tf.errors.InvalidArgumentError):
    decode([serialized])


def test_every_key_of_a_photograph_is_read():
  serialized = photograph_files.example_2017(
    b'some jpeg',
    7,
    (20, 30),
    boxes=[(0.125, 0.25, 0.5, 0.75), (0.0, 0.0, 1.0, 0.5)],
  )
  stored = examples.parse(serialized)
  assert stored.encoded == b'some jpeg'
  assert stored.image_format == b'JPEG'
  assert stored.label == 7
  np.testing.assert_array_equal(stored.size, [20, 30])
  # ymin, xmin, ymax, xmax
  np.testing.assert_array_equal(
    stored.boxes, [[0.25, 0.125, 0.75, 0.5], [0, 0, 0.5, 1]]
  )


def test_photograph_needs_image_and_label_only():
  stored = examples.parse(record_files.example(b'some png', 3))
  assert (stored.encoded, stored.image_format) == (b'some png', b'')
  np.testing.assert_array_equal(stored.size, [-1, -1])
  assert stored.boxes.shape == (0, 4)


@pytest.mark.parametrize(
  'serialized', [b'no example', tf.train.Example().SerializeToString()]
)
def test_records_without_a_photograph_are_refused(serialized):
  with pytest.raises(tf.errors.InvalidArgumentError):
    examples.parse(serialized)
