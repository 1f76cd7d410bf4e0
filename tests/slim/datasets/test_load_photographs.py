"""Photographs by `factory.load`: shards, folders of 2017, image folders."""

import itertools
import os
import pathlib
import subprocess
import sys
import tarfile

import numpy as np
import pytest
import tensorflow as tf

from slim import errors
from slim.datasets import factory
from tests.slim import image_files
from tests.slim import photograph_files
from tests.slim import record_files
from tests.slim import shard_files
from tests.slim import stateful

SIZES = [(40, 50), (33, 61), (64, 48), (50, 50), (45, 90), (72, 38), (41, 41)]
BOX = (0.25, 0.25, 0.75, 0.75)


def pixels(number):
  return photograph_files.pixels(*SIZES[number], seed=number)


def example(number, label=None):
  """JPEG, PNG in disguise and RAW in turns; with and without boxes."""
  image = pixels(number)
  encoded, image_format = [
    (photograph_files.jpeg(image), b'JPEG'),
    (tf.io.encode_png(image).numpy(), b'JPEG'),
    (image.tobytes(), b'RAW'),
  ][number % 3]
  return photograph_files.example_2017(
    encoded,
    1 + number % 3 if label is None else label,
    SIZES[number],
    image_format=image_format,
    boxes=[BOX] * (number % 2),
  )


@pytest.fixture
def shards_of_2017(tmp_path):
  """Seven photographs in three files, without shards.json."""
  for number, members in enumerate(([0, 1, 2], [3], [4, 5, 6])):
    record_files.write(
      tmp_path / f'train-{number:05d}-of-00003', [example(m) for m in members]
    )
  return tmp_path


def read_options(**options):
  options = {'image_size': 16, 'batch_size': 2, 'training': True} | options
  return factory.ReadOptions(**options)


def load(folder, count, name='imagenet', **options):
  """`count` batches, or as many as examples, and the split."""
  stream, split = factory.load(name, folder, 'train', read_options(**options))
  count = split.count if count is None else count
  # An iterator without a batch would begin to read.
  batches = stream.as_numpy_iterator() if count else ()
  return list(itertools.islice(batches, count)), split


def assert_same(left, right):
  for one, other in zip(left, right, strict=True):
    np.testing.assert_array_equal(one[0], other[0])
    np.testing.assert_array_equal(one[1], other[1])


def test_records_of_2017_are_read(shards_of_2017):
  batches, split = load(shards_of_2017, 9, training=False)
  assert (split.num_examples, split.count) == (7, 7)
  assert (split.num_classes, split.channels) == (1001, 3)
  assert [len(labels) for _, labels in batches] == [2, 2, 2, 1]
  labels = np.concatenate([labels for _, labels in batches])
  np.testing.assert_array_equal(labels, [1, 2, 3, 1, 2, 3, 1])
  images = np.concatenate([images for images, _ in batches])
  for number, (image, (height, width)) in enumerate(
    zip(images, SIZES, strict=True)
  ):
    y, x = int(height * 0.125 / 2), int(width * 0.125 / 2)
    stored = pixels(number)
    if number % 3 == 0:
      stored = tf.io.decode_jpeg(photograph_files.jpeg(stored)).numpy()
    part = stored[y : height - y, x : width - x]
    expected = tf.image.resize(part, [16, 16]) / 127.5 - 1
    np.testing.assert_allclose(image, expected, atol=1e-5)


@pytest.mark.parametrize(
  'net',
  ['googlenet', pytest.param('alexnet', marks=pytest.mark.slow), 'vgg_16'],
)
@pytest.mark.gate_every(2)
def test_training_from_batch_k_equals_the_stream_after_k_batches(
  shards_of_2017, net
):
  # An epoch has seven photographs.
  whole, _ = load(shards_of_2017, 6, net=net)
  for k in (1, 4):
    rest, _ = load(shards_of_2017, 6 - k, net=net, start=2 * k)
    assert_same(rest, whole[k:])


@pytest.mark.parametrize('net', ['googlenet', 'alexnet', 'vgg_16'])
def test_op_determinism_makes_no_stage_serial(shards_of_2017, net):
  stream, _ = factory.load(
    'imagenet', shards_of_2017, 'train', read_options(net=net)
  )
  assert stateful.operations(stream) == set()


def test_a_random_operation_would_be_serial():
  stream = tf.data.Dataset.range(3).map(
    lambda i: tf.random.uniform([]), num_parallel_calls=2
  )
  assert stateful.operations(stream) == {'RandomUniform'}


def test_every_visit_of_a_photograph_looks_different(shards_of_2017):
  batches, _ = load(shards_of_2017, 7)
  images = np.concatenate([images for images, _ in batches])
  assert len({image.tobytes() for image in images}) == 14


@pytest.mark.slow
def test_threads_do_not_change_the_images(shards_of_2017):
  one, _ = load(shards_of_2017, 7, threads=1)
  four, _ = load(shards_of_2017, 7, threads=4)
  assert_same(one, four)


def test_workers_share_the_photographs_without_overlap(shards_of_2017):
  found = []
  for worker in range(3):
    batches, split = load(
      shards_of_2017,
      9,
      training=False,
      worker=worker,
      num_workers=3,
      batch_size=1,
    )
    assert split.num_examples == 7
    assert split.count == len(batches)
    found += [images for images, _ in batches]
  whole, _ = load(shards_of_2017, 7, training=False, batch_size=1)
  np.testing.assert_array_equal(found, [images for images, _ in whole])


def test_workers_augment_differently(tmp_path):
  record_files.write(tmp_path / 'train-0', [example(0)] * 2)
  images = [
    load(tmp_path, 1, batch_size=1, worker=w, num_workers=2)[0][0][0]
    for w in (0, 1)
  ]
  assert np.any(images[0] != images[1])


@pytest.mark.parametrize(
  'name',
  [
    pytest.param(
      name, marks=[] if name in ('inception', 'vgg') else pytest.mark.slow
    )
    for name in factory.preprocessing.PREPROCESSINGS
  ],
)
def test_any_preprocessing_can_be_requested(shards_of_2017, name):
  batches, _ = load(shards_of_2017, 1, preprocessing=name)
  assert batches[0][0].shape == (2, 16, 16, 3)
  assert batches[0][0].dtype == np.float32


def test_an_unknown_preprocessing_is_refused(shards_of_2017):
  with pytest.raises(errors.UnknownNameError, match="did you mean 'vgg'"):
    load(shards_of_2017, 1, preprocessing='vvg')


def test_photographs_smaller_than_the_crop_are_refused(shards_of_2017):
  with pytest.raises(
    tf.errors.InvalidArgumentError,
    match=r'image_size: expected at most \d\d, the .* received 70. Choose a',
  ):
    load(shards_of_2017, 4, preprocessing='cifarnet', image_size=70)


def test_label_beyond_the_classes_is_refused(tmp_path):
  shard_files.write(
    tmp_path, 'imagenet', {'train': [[example(0, label=3)]]}, num_classes=3
  )
  with pytest.raises(
    tf.errors.InvalidArgumentError, match=r'expected labels in \[0, 3\)'
  ):
    load(tmp_path, 1)


def image_folder(folder, classes=('rose', 'daisy')):
  for number in range(7):
    path = folder / 'train' / classes[number % 2]
    path.mkdir(parents=True, exist_ok=True)
    image = pixels(number)
    content = (
      photograph_files.jpeg(image)
      if number < 4
      else tf.io.encode_png(image).numpy()
    )
    (path / f'a photo {number}.jpg').write_bytes(content)
  (folder / 'train' / '.hidden').mkdir()
  return folder


def test_an_image_folder_is_read_in_place(tmp_path):
  batches, split = load(
    image_folder(tmp_path), 9, 'image_folder', training=False
  )
  assert split.labels == {0: 'daisy', 1: 'rose'}
  assert (split.num_examples, split.num_classes) == (7, 2)
  labels = np.concatenate([labels for _, labels in batches])
  np.testing.assert_array_equal(labels, [0, 0, 0, 1, 1, 1, 1])


@pytest.mark.parametrize(
  ('limit', 'expected'),
  [
    (1, [0]),
    (3, [0, 0, 1]),
    (4, [0, 0, 1, 1]),
    (7, [0, 0, 0, 1, 1, 1, 1]),
    (9, [0, 0, 0, 1, 1, 1, 1]),
  ],
)
def test_a_limited_evaluation_of_a_folder_has_all_classes(
  tmp_path, limit, expected
):
  batches, split = load(
    image_folder(tmp_path), 9, 'image_folder', training=False, limit=limit
  )
  assert [label for _, labels in batches for label in labels] == expected
  assert (split.count, split.num_examples) == (len(expected), 7)


def test_a_limited_evaluation_of_records_has_the_first(shards_of_2017):
  options = {'training': False, 'batch_size': 1, 'preprocessing': 'lenet'}
  whole, _ = load(shards_of_2017, 9, **options)
  part, split = load(shards_of_2017, 9, limit=4, **options)
  assert (split.count, split.num_examples) == (4, 7)
  assert_same(part, whole[:4])


def test_a_folder_s_epochs_are_permutations_and_resume(tmp_path):
  image_folder(tmp_path)
  # lenet's is not random, so that images can be told apart.
  options = {'name': 'image_folder', 'preprocessing': 'lenet', 'batch_size': 1}
  whole, _ = load(tmp_path, 21, **options)
  names = [images.tobytes() for images, _ in whole]
  epochs = [tuple(names[i : i + 7]) for i in (0, 7, 14)]
  assert len({frozenset(epoch) for epoch in epochs}) == 1
  assert len(set(epochs[0])) == 7
  assert len(set(epochs)) == 3
  rest, _ = load(tmp_path, 12, start=9, **options)
  assert_same(rest, whole[9:])


def test_a_folder_s_workers_do_not_overlap(tmp_path):
  image_folder(tmp_path)
  options = {'name': 'image_folder', 'preprocessing': 'lenet', 'batch_size': 1}
  parts = []
  for worker in range(2):
    batches, _ = load(tmp_path, None, worker=worker, num_workers=2, **options)
    parts += [images.tobytes() for images, _ in batches]
  assert len(parts) == len(set(parts)) == 7


def test_every_worker_of_a_folder_trains_on_all_classes_evenly(tmp_path):
  # Sorted by class: consecutive parts would have one class each.
  image_files.write_folders(tmp_path / 'train', {'ape': 4, 'bee': 4})
  for worker in range(2):
    batches, split = load(
      tmp_path,
      3,
      'image_folder',
      batch_size=4,
      preprocessing='lenet',
      worker=worker,
      num_workers=2,
    )
    assert (split.count, split.num_examples) == (4, 8)
    assert [sorted(labels) for _, labels in batches] == [[0, 0, 1, 1]] * 3


def test_a_part_of_a_batch_has_the_bits_of_the_whole_batch(tmp_path):
  """299 * 299 pixels are no multiple of a vector."""
  image_folder(tmp_path)
  options = {
    'name': 'image_folder',
    'preprocessing': 'inception',
    'image_size': 299,
    'batch_size': 7,
  }
  whole, _ = load(tmp_path, 1, **options)
  parts = [
    load(tmp_path, 1, rows=rows, **options)[0][0][0]
    for rows in ((0, 1), (1, 4), (4, 7))
  ]
  np.testing.assert_array_equal(np.concatenate(parts), whole[0][0])


def test_labels_txt_orders_the_classes_of_a_folder(tmp_path):
  image_folder(tmp_path)
  (tmp_path / 'labels.txt').write_text('tulip\nrose\ndaisy\n')
  _, split = load(tmp_path, 0, 'image_folder')
  assert (split.num_classes, split.labels[2]) == (3, 'daisy')
  (tmp_path / 'labels.txt').write_text('rose\n')
  with pytest.raises(
    errors.DataError, match='rose; received daisy, rose. Not among'
  ):
    load(tmp_path, 0, 'image_folder')


def test_folder_without_images_is_refused(tmp_path):
  with pytest.raises(errors.DataError, match='a folder of images for each'):
    load(tmp_path, 0, 'image_folder')
  (tmp_path / 'train' / 'rose').mkdir(parents=True)
  with pytest.raises(errors.DataError, match='expected images in the folders'):
    load(tmp_path, 0, 'image_folder')


@pytest.mark.skipif(
  'TERNGRAD_TEST_DATA' not in os.environ,
  reason='TERNGRAD_TEST_DATA names no folder of real data',
)
def test_real_flower_photographs_are_read(tmp_path):
  source = pathlib.Path(os.environ['TERNGRAD_TEST_DATA'])
  with tarfile.open(source / 'flower_photos_small.tar') as tar:
    tar.extractall(tmp_path, filter='data')
  (folder,) = tmp_path.iterdir()
  folder.rename(tmp_path / 'train')
  for training in (True, False):
    batches, split = load(
      tmp_path, 25, 'image_folder', training=training, batch_size=8
    )
    assert split.labels[2] == 'roses'
    assert split.count == 200
    labels = np.concatenate([labels for _, labels in batches])
    np.testing.assert_array_equal(np.bincount(labels), [40] * 5)


# The largest resident memory, in kB, of reading some batches. (That of
# getrusage begins with the parent's.)
MEASURE = """
import itertools, pathlib, re, sys
from slim.datasets import factory, read_options
options = read_options.ReadOptions(
    image_size=8, batch_size=8, training=True, threads=1,
    shuffle_buffer=int(sys.argv[2]))
stream, _ = factory.load('imagenet', sys.argv[1], 'train', options)
iterator = stream.as_numpy_iterator()
for _ in itertools.islice(iterator, int(sys.argv[3])):
  pass
status = pathlib.Path('/proc/self/status').read_text()
sys.stdout.write(re.search(r'VmHWM:\\s+(\\d+) kB', status)[1])
"""


@pytest.mark.slow
def test_peak_memory_follows_the_shuffle_buffer(tmp_path):
  size, count = 100_000, 2000
  payload = photograph_files.jpeg(pixels(0)) + bytes(size)
  for shard in range(20):
    record_files.write(
      tmp_path / f'train-{shard:05d}-of-00020',
      [photograph_files.example_2017(payload, 1, SIZES[0])] * (count // 20),
    )

  def peak(buffer):
    # Two windows and a bit, so that both are in memory.
    batches = str(5 * 1000 // 2 // 8)
    result = subprocess.run(
      [sys.executable, '-c', MEASURE, str(tmp_path), str(buffer), batches],
      capture_output=True,
      text=True,
      timeout=300,
      check=True,
      # One arena: with several, what one thread frees no other can use.
      env={**os.environ, 'MALLOC_ARENA_MAX': '1'},
    )
    return int(result.stdout) * 1024

  small, middle, large = peak(10), peak(500), peak(1000)
  # Two windows, and while one is permuted its copy; the half is for what the
  # allocator keeps.
  for low, high, records in ((small, middle, 490), (middle, large, 500)):
    assert 1.0 * records * size < high - low < 3.5 * records * size


def test_labels_offset_of_one_removes_the_background(shards_of_2017):
  batches, split = load(
    shards_of_2017, 9, training=False, batch_size=7, labels_offset=1
  )
  assert split.num_classes == 1000
  np.testing.assert_array_equal(batches[0][1], [0, 1, 2, 0, 1, 2, 0])


@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize(
  ('options', 'message'),
  [
    ({'preprocessing': 'vgg', 'image_size': 300}, 'image_size: expected at mo'),
    ({'num_workers': 10}, 'num_workers: expected at most 7'),
  ],
)
def test_options_that_the_images_do_not_allow_are_refused(
  shards_of_2017, training, options, message
):
  with pytest.raises(errors.DataError, match=message):
    load(shards_of_2017, 9, training=training, **options)


@pytest.mark.parametrize(
  ('offset', 'error', 'message'),
  [
    (2, tf.errors.InvalidArgumentError, 'expected no label below 2'),
    (1001, errors.DataError, 'expected less than the 1001 classes'),
    (-1, ValueError, 'labels_offset: expected >= 0'),
  ],
)
def test_labels_offset_that_does_not_fit_is_refused(
  shards_of_2017, offset, error, message
):
  with pytest.raises(error, match=message):
    load(shards_of_2017, 9, training=False, labels_offset=offset)
