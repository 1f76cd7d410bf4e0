import os
import pathlib
import signal
import subprocess
import sys
import types

import numpy as np
import pytest
import tensorflow as tf

from slim import errors
from slim.datasets import catalog
from slim.datasets import factory
from slim.datasets import shards
from slim.datasets.records import disk
from slim.datasets.records import records
from slim.datasets.records import sharding
from slim.datasets.small_images import convert_arrays
from slim.datasets.small_images import convert_mnist
from slim.datasets.small_images import fashion_mnist_source
from slim.datasets.small_images import mnist_source
from tests.slim import mnist_files

ROOT = pathlib.Path(__file__).resolve().parents[4]
NAMES = {
  'train-mnist.tfrecord',
  'test-mnist.tfrecord',
  'labels.txt',
  'shards.json',
}

# Converts, and kills itself where the second argument says.
KILLED = """
import os, pathlib, signal, sys
from slim.datasets.records import features
from slim.datasets.small_images import convert_mnist, mnist_source
calls = 0
def killing(function):
  def wrapped(*arguments):
    global calls
    calls += 1
    if calls > int(sys.argv[4]):
      os.kill(os.getpid(), signal.SIGKILL)
    return function(*arguments)
  return wrapped
if sys.argv[3] == 'example':
  features.Template.serialize = killing(features.Template.serialize)
else:
  pathlib.Path.rename = killing(pathlib.Path.rename)
request = mnist_source.SourceOptions(sys.argv[1], verify_checksums=False)
convert_mnist.convert(
  sys.argv[2], source='idx', request=request, overwrite=True
)
"""


def convert(tmp_path, **options):
  return convert_mnist.convert(
    str(tmp_path / 'mnist'),
    source='idx',
    request=mnist_source.SourceOptions(str(tmp_path / 'idx'), False),
    **options,
  )


def test_plain_tensorflow_reads_the_2017_format(small_mnist):
  # The keys, types and values, written out: no project code reads here.
  features = {
    'image/encoded': tf.io.FixedLenFeature([], tf.string),
    'image/format': tf.io.FixedLenFeature([], tf.string),
    'image/class/label': tf.io.FixedLenFeature([], tf.int64),
    'image/class/text': tf.io.FixedLenFeature([], tf.string),
    'image/height': tf.io.FixedLenFeature([], tf.int64),
    'image/width': tf.io.FixedLenFeature([], tf.int64),
    'image/channels': tf.io.FixedLenFeature([], tf.int64),
    'image/colorspace': tf.io.FixedLenFeature([], tf.string),
    'image/object/bbox/xmin': tf.io.VarLenFeature(tf.float32),
    'image/object/bbox/xmax': tf.io.VarLenFeature(tf.float32),
    'image/object/bbox/ymin': tf.io.VarLenFeature(tf.float32),
    'image/object/bbox/ymax': tf.io.VarLenFeature(tf.float32),
  }
  names = 'zero one two three four five six seven eight nine'.split()
  for split, arrays in small_mnist.splits.items():
    path = small_mnist.folder / f'{split}-mnist.tfrecord'
    found = list(tf.data.TFRecordDataset(str(path)))
    for serialized, image, label in zip(found, *arrays, strict=True):
      example = tf.io.parse_single_example(serialized, features)
      keys = tf.train.Example.FromString(serialized.numpy()).features.feature
      assert set(keys) == set(features)
      pixels = tf.io.decode_png(example['image/encoded'])
      np.testing.assert_array_equal(pixels, image[..., None])
      assert example['image/class/label'] == label
      assert example['image/class/text'] == names[label].encode()
      assert example['image/format'] == b'png'
      assert example['image/colorspace'] == b'RGB'
      assert (example['image/height'], example['image/width']) == (28, 28)
      assert example['image/channels'] == 1
      for side in ('xmin', 'xmax', 'ymin', 'ymax'):
        boxes = f'image/object/bbox/{side}'
        assert keys[boxes].WhichOneof('kind') == 'float_list'
        assert len(example[boxes].values) == 0


def test_labels_file_names_the_classes(small_mnist):
  lines = (small_mnist.folder / 'labels.txt').read_text().splitlines()
  assert lines == [
    *('0:zero', '1:one', '2:two', '3:three', '4:four'),
    *('5:five', '6:six', '7:seven', '8:eight', '9:nine'),
  ]


def test_only_the_output_files_are_left(small_mnist):
  assert {path.name for path in small_mnist.folder.iterdir()} == NAMES


def test_report_says_what_was_written_and_from_where(tmp_path):
  mnist_files.write_idx(tmp_path / 'idx')
  report = convert(tmp_path)
  assert report.written and report.counts == {'train': 23, 'test': 11}
  assert str(tmp_path / 'idx') in report.source


def test_images_of_several_encoding_calls_are_all_written(tmp_path):
  splits = mnist_files.write_idx(tmp_path / 'idx', train=2001)
  assert convert(tmp_path).counts['train'] == 2001
  stream, _ = factory.load(
    'mnist',
    tmp_path / 'mnist',
    'train',
    factory.ReadOptions(image_size=28, batch_size=2001, training=False),
  )
  _, labels = next(iter(stream))
  np.testing.assert_array_equal(labels, splits['train'].labels)


def test_complete_files_are_reused_without_a_requested_source(
  tmp_path, small_mnist
):
  report = convert_mnist.convert(str(small_mnist.folder))
  assert (report.written, report.counts['train']) == (False, 23)
  assert not convert(tmp_path).written  # the same source
  mnist_files.write_idx(tmp_path / 'idx', train=5)
  with pytest.raises(errors.DataError, match='the result of another source'):
    convert(tmp_path)
  report = convert(tmp_path, overwrite=True)
  assert (report.written, report.counts['train']) == (True, 5)
  assert records.scan(small_mnist.folder / 'train-mnist.tfrecord') == 5


def test_files_of_another_data_set_are_not_reused(tmp_path):
  mnist_files.write_idx(tmp_path / 'idx')
  layout = convert_arrays.FileLayout(shard=True, train_shards=2)
  convert(tmp_path, layout=layout)
  request = mnist_source.SourceOptions(str(tmp_path / 'idx'), False)
  fashion = types.SimpleNamespace(
    FACTS=fashion_mnist_source.FACTS,
    SOURCES={'auto': lambda _: mnist_source.SOURCES['idx'](request)},
  )
  with pytest.raises(errors.DataError, match='the result of another source'):
    convert_arrays.convert(
      *(tmp_path / 'mnist', fashion, 'auto', mnist_source.SourceOptions()),
      *(layout, sharding.ConversionOptions()),
    )


@pytest.mark.parametrize('name', sorted(NAMES - {'shards.json'}))
def test_all_files_are_written_if_one_is_missing(tmp_path, small_mnist, name):
  (small_mnist.folder / name).unlink()
  assert convert(tmp_path).counts == {'train': 23, 'test': 11}
  assert {path.name for path in small_mnist.folder.iterdir()} == NAMES


def test_damaged_files_are_written_again(tmp_path, small_mnist):
  path = small_mnist.folder / 'test-mnist.tfrecord'
  content = bytearray(path.read_bytes())
  content[-1] ^= 1
  path.write_bytes(content)
  assert convert(tmp_path).written
  assert records.verify(path) == 11


def test_the_folder_of_the_source_is_refused(tmp_path):
  mnist_files.write_idx(tmp_path / 'mnist')
  with pytest.raises(errors.DataError, match='expected different folders'):
    convert_mnist.convert(
      str(tmp_path / 'mnist'),
      source='idx',
      request=mnist_source.SourceOptions(str(tmp_path / 'mnist' / '.'), False),
    )


def test_a_refused_source_leaves_the_old_files(tmp_path, small_mnist):
  (tmp_path / 'idx' / 'train-images-idx3-ubyte.gz').write_bytes(b'')
  with pytest.raises(errors.DataError, match='header of 16 bytes'):
    convert(tmp_path, overwrite=True)
  assert records.scan(small_mnist.folder / 'train-mnist.tfrecord') == 23


def test_a_folder_that_cannot_be_created_is_refused(tmp_path):
  mnist_files.write_idx(tmp_path / 'idx')
  (tmp_path / 'mnist').write_text('a file')
  with pytest.raises(
    errors.DataError, match='a writable folder with free space'
  ):
    convert(tmp_path)


def test_a_failure_while_writing_leaves_nothing(tmp_path, monkeypatch):
  mnist_files.write_idx(tmp_path / 'idx')

  def fail(*_):
    raise OSError('No space left on device')

  monkeypatch.setattr(disk, 'sync', fail)
  with pytest.raises(errors.DataError, match='No space left on device'):
    convert(tmp_path)
  assert list((tmp_path / 'mnist').iterdir()) == []


def test_unknown_source_is_refused(tmp_path):
  with pytest.raises(errors.UnknownNameError, match="did you mean 'embedded'"):
    convert_mnist.convert(str(tmp_path), source='embeded')


@pytest.mark.slow
@pytest.mark.parametrize(
  ('where', 'after', 'left'),
  [
    ('example', 10, set()),
    ('example', 30, set()),  # the training split is written, but not in place
    ('rename', 0, set()),
    ('rename', 1, {'train-mnist.tfrecord'}),
  ],
)
def test_a_killed_conversion_is_refused_by_readers(
  tmp_path, small_mnist, where, after, left
):
  arguments = [tmp_path / 'idx', small_mnist.folder, where, str(after)]
  if where == 'example':
    # With overwrite the old files stay until the new ones are whole.
    for name in NAMES:
      (small_mnist.folder / name).unlink()
  child = subprocess.run(
    [sys.executable, '-c', KILLED, *arguments],
    cwd=tmp_path,
    env={**os.environ, 'PYTHONPATH': str(ROOT)},
    capture_output=True,
    timeout=120,
    check=False,
  )
  assert child.returncode == -signal.SIGKILL, child.stderr
  remaining = {path.name for path in small_mnist.folder.iterdir()}
  assert remaining & NAMES == left
  for split in ('train', 'test'):
    with pytest.raises(errors.DataError, match='expected a finished'):
      shards.find(catalog.DATASETS['mnist'], small_mnist.folder, split)
  assert convert(tmp_path).written  # the next one does not keep half of it
  assert convert(tmp_path).counts == {'train': 23, 'test': 11}


@pytest.mark.slow
def test_the_whole_of_mnist_is_converted_and_read(tmp_path):
  folder = os.getenv('TERNGRAD_TEST_DATA')
  if not folder:
    pytest.skip('TERNGRAD_TEST_DATA names no folder with mnist/')
  request = mnist_source.SourceOptions(str(pathlib.Path(folder) / 'mnist'))
  report = convert_mnist.convert(str(tmp_path), source='idx', request=request)
  assert report.counts == {'train': 60_000, 'test': 10_000}
  read_options = factory.ReadOptions(
    image_size=28, batch_size=300, training=False
  )
  stream, split = factory.load('mnist', tmp_path, 'test', read_options)
  labels = np.concatenate([labels for _, labels in stream.as_numpy_iterator()])
  assert len(labels) == split.count == 10_000
  assert labels[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
