import itertools

import numpy as np
import pytest
import tensorflow as tf

from slim import errors
from slim.datasets import factory
from slim.datasets.records import records
from slim.preprocessing import contract
from tests.slim import record_files
from tests.slim import shard_files
from tests.slim import stateful


def training(data, **options):
  options = {'image_size': 28, 'batch_size': 4, 'seed': 5} | options
  read_options = factory.ReadOptions(training=True, **options)
  stream, _ = factory.load('mnist', data.folder, 'train', read_options)
  return stream.as_numpy_iterator()


def evaluation(data, split='test', **options):
  options = {'image_size': 28, 'batch_size': 4} | options
  read_options = factory.ReadOptions(training=False, **options)
  stream, info = factory.load('mnist', data.folder, split, read_options)
  return stream, info.count


def scaled(images):
  """What images of the stored size are preprocessed to."""
  return ((images.astype(np.float32) / 255 - 0.5) * 2)[..., None]


def identify(images, arrays):
  """Returns the number in `arrays` of each image."""
  stored = scaled(arrays.images).reshape(len(arrays.images), -1)
  flat = images.reshape(len(images), 1, -1)
  distances = np.abs(stored - flat).max(-1)
  assert (distances.min(1) < 2**-20).all()
  return distances.argmin(1)


def assert_same_batches(left, right):
  for (images, labels), (others, other_labels) in zip(left, right, strict=True):
    np.testing.assert_array_equal(images, others)
    np.testing.assert_array_equal(labels, other_labels)


def test_elements_are_float32_images_and_int32_labels(small_mnist):
  for stream, count in (
    evaluation(small_mnist),
    evaluation(small_mnist, split='train'),
  ):
    images, labels = stream.element_spec
    assert (images.dtype, labels.dtype) == (tf.float32, tf.int32)
    assert images.shape.as_list() == [None, 28, 28, 1]
    assert count in (11, 23)


def test_op_determinism_makes_no_stage_serial(small_mnist):
  options = factory.ReadOptions(training=True, image_size=28, batch_size=4)
  stream, _ = factory.load('mnist', small_mnist.folder, 'train', options)
  assert stateful.operations(stream) == set()


def test_evaluation_scores_every_example_once_in_order(small_mnist):
  stream, count = evaluation(small_mnist)
  batches = list(stream.as_numpy_iterator())
  assert count == 11
  assert [len(labels) for _, labels in batches] == [4, 4, 3]
  images = np.concatenate([images for images, _ in batches])
  labels = np.concatenate([labels for _, labels in batches])
  arrays = small_mnist.splits['test']
  np.testing.assert_allclose(images, scaled(arrays.images), atol=2**-20)
  np.testing.assert_array_equal(labels, arrays.labels)


def test_evaluation_twice_gives_the_same(small_mnist):
  stream, _ = evaluation(small_mnist)
  assert_same_batches(stream.as_numpy_iterator(), stream.as_numpy_iterator())


def test_training_batches_are_full_and_every_epoch_a_permutation(small_mnist):
  arrays = small_mnist.splits['train']
  batches = list(itertools.islice(training(small_mnist), 23))
  assert {images.shape for images, _ in batches} == {(4, 28, 28, 1)}
  images = np.concatenate([images for images, _ in batches])
  labels = np.concatenate([labels for _, labels in batches])
  seen = identify(images, arrays)
  np.testing.assert_array_equal(labels, arrays.labels[seen])
  orders = seen.reshape(4, 23)  # 23 batches of 4 are 4 epochs of 23
  np.testing.assert_array_equal(np.sort(orders), [range(23)] * 4)
  assert len({tuple(order) for order in orders}) == 4


@pytest.mark.parametrize(
  'shuffle_buffer',
  [
    pytest.param(1, marks=pytest.mark.slow),
    5,
    pytest.param(16384, marks=pytest.mark.slow),
  ],
)
def test_training_from_batch_k_equals_the_stream_after_k_batches(
  small_mnist, shuffle_buffer
):
  def batches(start, count):
    return itertools.islice(
      training(small_mnist, start=start, shuffle_buffer=shuffle_buffer), count
    )

  # 23 examples in batches of 4: in the first epoch, the second and the third.
  whole = list(batches(0, 14))
  for k in (1, 6, 12):
    assert_same_batches(batches(4 * k, 14 - k), whole[k:])


def test_training_does_not_depend_on_the_batch_size(small_mnist):
  fours = itertools.islice(training(small_mnist), 6)
  eights = list(itertools.islice(training(small_mnist, batch_size=8), 3))
  np.testing.assert_array_equal(
    np.concatenate([images for images, _ in fours]),
    np.concatenate([images for images, _ in eights]),
  )


def test_other_seeds_give_other_orders(small_mnist):
  first, _ = next(training(small_mnist, batch_size=23, seed=1))
  second, _ = next(training(small_mnist, batch_size=23, seed=2))
  assert np.any(first != second)


def test_images_have_the_requested_size(small_mnist):
  for size in (24, 32):
    images, _ = next(training(small_mnist, image_size=size))
    assert images.shape == (4, size, size, 1)


def test_preprocessing_gets_seed_and_position_of_each_example(
  small_mnist, monkeypatch
):
  class SeedsAsImages(contract.Batched):
    def train(self, images, seeds, image_size):
      del images, image_size
      return tf.cast(seeds, tf.float32)

    evaluate = train

  monkeypatch.setitem(
    factory.preprocessing.PREPROCESSINGS, 'mnist', SeedsAsImages()
  )
  batches = training(small_mnist, seed=77, start=20)
  for first in (20, 24):
    expected = [[77, first + i] for i in range(4)]
    np.testing.assert_array_equal(next(batches)[0], expected)


@pytest.mark.parametrize(
  ('name', 'command'),
  [
    ('mnist', 'dataset --dataset_name=mnist --dataset_dir='),
    ('flowers', 'flowers '),
    ('imagenet', 'download_imagenet '),
    ('images', 'images --train_directory=T --output_directory='),
  ],
)
def test_empty_folder_is_refused_with_the_command_that_fills_it(
  name, command, tmp_path
):
  read_options = factory.ReadOptions(image_size=28, batch_size=1, training=True)
  for folder in (tmp_path, tmp_path / 'none'):
    with pytest.raises(
      errors.DataError,
      match='expected files train-.*received none.*'
      f'terngrad convert {command}{folder}$',
    ):
      factory.load(name, folder, 'train', read_options)


def test_unknown_names_are_refused(small_mnist):
  read_options = factory.ReadOptions(image_size=28, batch_size=1, training=True)
  with pytest.raises(errors.UnknownNameError, match="did you mean 'mnist'"):
    factory.load('mnits', small_mnist.folder, 'train', read_options)
  with pytest.raises(errors.UnknownNameError, match="did you mean 'train'"):
    factory.load('mnist', small_mnist.folder, 'trian', read_options)


@pytest.mark.parametrize(
  'options',
  [{'image_size': 0}, {'batch_size': 0}, {'start': 1}, {'shuffle_buffer': 0}],
)
def test_numbers_out_of_range_are_refused(small_mnist, options):
  with pytest.raises(ValueError, match=f'{next(iter(options))}: expected'):
    evaluation(small_mnist, **options)


def test_cut_file_is_refused_before_the_first_batch(small_mnist):
  path = small_mnist.folder / 'train-mnist.tfrecord'
  path.write_bytes(path.read_bytes()[:-5])
  with pytest.raises(
    errors.DataError, match='train-mnist.tfrecord: record 22 '
  ):
    training(small_mnist)


def test_damaged_payload_surfaces_and_is_explained(small_mnist):
  path = small_mnist.folder / 'train-mnist.tfrecord'
  content = bytearray(path.read_bytes())
  content[len(content) // 2] ^= 4
  path.write_bytes(content)
  with pytest.raises(tf.errors.DataLossError) as caught:
    list(itertools.islice(training(small_mnist), 6))
  explained = records.explain(
    caught.value, records.find(small_mnist.folder, 'train')
  )
  assert 'train-mnist.tfrecord: record 1' in str(explained)


def test_records_that_are_not_examples_surface_and_are_explained(tmp_path):
  """Also where TensorFlow cannot make text of its message, which holds them."""
  for payload in (b'no example', b'\xa0\xff' * 40):
    record_files.write(tmp_path / 'test-x', [payload])
    read_options = factory.ReadOptions(
      image_size=28, batch_size=1, training=False
    )
    stream, _ = factory.load('mnist', tmp_path, 'test', read_options)
    with pytest.raises(records.FAILURES) as caught:
      list(stream)
    said = str(records.explain(caught.value, [tmp_path / 'test-x']))
    assert 'every record is intact, but reading failed with' in said
    assert 'Could not parse example' in said and len(said) < 2000


def test_label_of_another_data_set_is_refused(tmp_path):
  png = tf.io.encode_png(np.zeros([28, 28, 1], np.uint8)).numpy()
  record_files.write(tmp_path / 'test-x', [record_files.example(png, 10)])
  read_options = factory.ReadOptions(
    image_size=28, batch_size=1, training=False
  )
  stream, _ = factory.load('mnist', tmp_path, 'test', read_options)
  with pytest.raises(
    tf.errors.InvalidArgumentError, match=r'expected labels in \[0, 10\)'
  ):
    list(stream)


@pytest.mark.parametrize(
  ('name', 'stored', 'size'),
  [('fashion_mnist', (28, 28, 1), 28), ('cifar10', (32, 32, 3), 24)],
)
def test_small_sets_of_2017_are_read(tmp_path, name, stored, size):
  images = np.random.default_rng(0).integers(0, 256, [3, *stored], np.uint8)
  payloads = [
    record_files.example(tf.io.encode_png(image).numpy(), 9 - i)
    for i, image in enumerate(images)
  ]
  record_files.write(tmp_path / f'train-{name}.tfrecord', payloads)
  (tmp_path / 'labels.txt').write_text(
    ''.join(f'{i}:class {i}\n' for i in range(10))
  )
  read_options = factory.ReadOptions(
    image_size=size, batch_size=2, training=True
  )
  stream, split = factory.load(name, tmp_path, 'train', read_options)
  assert (split.num_examples, split.num_classes) == (3, 10)
  assert split.labels[9] == 'class 9'
  batches = list(itertools.islice(stream.as_numpy_iterator(), 3))
  assert {images.shape for images, _ in batches} == {(2, size, size, stored[2])}
  labels = np.concatenate([labels for _, labels in batches]).reshape(2, 3)
  np.testing.assert_array_equal(np.sort(labels), [[7, 8, 9]] * 2)


def test_shards_json_bounds_the_labels_of_a_small_set(tmp_path):
  png = tf.io.encode_png(np.zeros([28, 28, 1], np.uint8)).numpy()
  shard_files.write(
    tmp_path,
    'mnist',
    {'test': [[record_files.example(png, 4)]]},
    num_classes=4,
  )
  read_options = factory.ReadOptions(
    image_size=28, batch_size=1, training=False
  )
  stream, split = factory.load('mnist', tmp_path, 'test', read_options)
  assert split.num_classes == 4
  with pytest.raises(
    tf.errors.InvalidArgumentError, match=r'expected labels in \[0, 4\)'
  ):
    list(stream)
