"""Real data sets and small ones, checked with plain TensorFlow against the
sources, which are read here with NumPy alone."""

import gzip
import io
import os
import pathlib
import tarfile

import numpy as np
import pytest
import tensorflow as tf

from slim import errors
from slim.datasets import converters
from slim.datasets.records import shard_manifest
from slim.datasets.records import sharding
from slim.datasets.small_images import arrays
from slim.datasets.small_images import convert_arrays
from slim.datasets.small_images import fashion_mnist_source
from tests.slim import archives_made
from tests.slim import mnist_files
from tests.slim import plain_records

FASHION = pathlib.Path('/usr/share/datasets/fashion-mnist')
FASHION_CLASSES = (
  'T-shirt/top Trouser Pullover Dress Coat Sandal Shirt Sneaker Bag Ankle_boot'
).split()
KEYS = {
  *('image/encoded', 'image/format', 'image/class/label', 'image/class/text'),
  *('image/height', 'image/width', 'image/channels', 'image/colorspace'),
  *(f'image/object/bbox/{side}' for side in ('xmin', 'xmax', 'ymin', 'ymax')),
}


def convert(name, folder, source_dir, *, verify=False, train_shards=0, **order):
  order = {
    'source': 'auto',
    'layout': convert_arrays.FileLayout(bool(train_shards), train_shards),
    'options': sharding.ConversionOptions(),
    'validation_images': 0,
    **order,
  }
  request = arrays.SourceOptions(source_dir and str(source_dir), verify)
  return converters.convert(
    name,
    converters.ConversionRequest(
      dataset_dir=str(folder), request=request, **order
    ),
  )


def check(folder, split, images, labels, class_names):
  """Compares every record of a split with its source."""
  found = plain_records.in_folder(folder, split)
  for example, image, label in zip(found, images, labels, strict=True):
    only = plain_records.only
    assert set(example) == KEYS
    pixels = tf.io.decode_png(only(example, 'image/encoded')).numpy()
    np.testing.assert_array_equal(pixels.squeeze(), image)
    assert only(example, 'image/class/label') == label
    text = only(example, 'image/class/text').decode().replace(' ', '_')
    assert text == class_names[label]
    assert only(example, 'image/format') == b'png'
    assert only(example, 'image/colorspace') == b'RGB'
    size = image.shape[0], image.shape[1], 3 if image.ndim == 3 else 1
    assert size == tuple(
      only(example, f'image/{key}') for key in ('height', 'width', 'channels')
    )


def idx(path, header):
  return np.frombuffer(gzip.decompress(path.read_bytes()), np.uint8)[header:]


def check_idx(folder, source, class_names):
  for split, stem in (('train', 'train'), ('test', 't10k')):
    images = idx(source / f'{stem}-images-idx3-ubyte.gz', 16)
    labels = idx(source / f'{stem}-labels-idx1-ubyte.gz', 8)
    check(folder, split, images.reshape(-1, 28, 28), labels, class_names)


@pytest.mark.parametrize('train_shards', [0, 3])
def test_cifar10_is_written_as_in_2017(tmp_path, train_shards):
  batches = archives_made.cifar()
  (tmp_path / 'cifar-10-binary.tar.gz').write_bytes(
    archives_made.cifar_binary(batches)
  )
  folder = tmp_path / 'out'
  report = convert('cifar10', folder, tmp_path, train_shards=train_shards)
  assert report.counts == {'train': 20, 'test': 4}
  train = [batches[f'data_batch_{i}'] for i in range(1, 6)]
  images, labels = (np.concatenate(part) for part in zip(*train, strict=True))
  check(folder, 'train', images, labels, archives_made.CIFAR_CLASSES)
  check(folder, 'test', *batches['test_batch'], archives_made.CIFAR_CLASSES)
  names = {path.name for path in folder.iterdir()}
  expected = {'train-cifar10.tfrecord', 'test-cifar10.tfrecord'}
  if train_shards:
    expected = {f'train-0000{i}-of-00003' for i in range(3)}
    expected.add('test-00000-of-00001')
  assert names == expected | {'labels.txt', 'shards.json'}
  lines = (folder / 'labels.txt').read_text().splitlines()
  assert lines == [
    f'{i}:{name}' for i, name in enumerate(archives_made.CIFAR_CLASSES)
  ]


def test_cifar10_has_1000_shards_of_50_by_default():
  layout = convert_arrays.FileLayout(shard=True)
  names = convert_arrays.split_names('cifar10', ('train', 'test'), layout)
  assert (names['train'][7], len(names['train'])) == (
    'train-00007-of-01000',
    1000,
  )


@pytest.mark.parametrize('name', ['mnist', 'fashion_mnist'])
def test_idx_sets_can_be_sharded(tmp_path, name):
  splits = mnist_files.write_idx(tmp_path / 'idx')
  convert(name, tmp_path / 'out', tmp_path / 'idx', train_shards=4)
  assert len(list((tmp_path / 'out').glob('train-0000?-of-00004'))) == 4
  found = plain_records.in_folder(tmp_path / 'out', 'train')
  labels = [plain_records.only(e, 'image/class/label') for e in found]
  assert labels == splits['train'].labels.tolist()


def test_another_layout_in_the_same_folder_is_refused(tmp_path):
  mnist_files.write_idx(tmp_path / 'idx')
  convert('mnist', tmp_path / 'out', tmp_path / 'idx')
  with pytest.raises(errors.DataError, match='another source or other options'):
    convert('mnist', tmp_path / 'out', tmp_path / 'idx', train_shards=2)
  overwrite = sharding.ConversionOptions(overwrite=True)
  convert(
    'mnist',
    tmp_path / 'out',
    tmp_path / 'idx',
    train_shards=2,
    options=overwrite,
  )
  assert len(plain_records.in_folder(tmp_path / 'out', 'train')) == 23


def test_fashion_mnist_takes_the_installed_copy(tmp_path, monkeypatch):
  mnist_files.write_idx(tmp_path / 'debian')
  monkeypatch.setattr(
    fashion_mnist_source, 'INSTALLED', str(tmp_path / 'debian')
  )
  report = convert('fashion_mnist', tmp_path / 'out', None)
  assert report.source == f'idx files in {tmp_path}/debian'


def test_an_unknown_source_names_the_known_ones(tmp_path):
  with pytest.raises(errors.UnknownNameError, match='one of auto, binary, pyt'):
    convert('cifar10', tmp_path, None, source='idx')


@pytest.mark.slow
def test_real_fashion_mnist_is_converted_without_a_loss(tmp_path):
  folder = os.getenv('TERNGRAD_TEST_FASHION_MNIST', str(FASHION))
  if not pathlib.Path(folder).is_dir():
    pytest.skip('the package dataset-fashion-mnist is not installed')
  report = convert('fashion_mnist', tmp_path, folder, verify=True)
  assert report.counts == {'train': 60_000, 'test': 10_000}
  check_idx(tmp_path, pathlib.Path(folder), FASHION_CLASSES)


@pytest.mark.slow
def test_real_mnist_is_converted_without_a_loss(tmp_path):
  folder = os.getenv('TERNGRAD_TEST_DATA')
  if not folder:
    pytest.skip('TERNGRAD_TEST_DATA names no folder with mnist/')
  source = pathlib.Path(folder) / 'mnist'
  convert('mnist', tmp_path, source, verify=True, train_shards=1000)
  assert len(list(tmp_path.glob('train-*'))) == 1000
  names = 'zero one two three four five six seven eight nine'.split()
  check_idx(tmp_path, source, names)


@pytest.mark.slow
def test_real_cifar10_is_converted_without_a_loss(tmp_path):
  folder = os.getenv('TERNGRAD_TEST_DATA')
  if not folder:
    pytest.skip('TERNGRAD_TEST_DATA names no folder with cifar10-jpeg.tar.xz')
  batches = _photos(pathlib.Path(folder) / 'cifar10-jpeg.tar.xz')
  (tmp_path / 'cifar-10-binary.tar.gz').write_bytes(
    archives_made.cifar_binary(batches)
  )
  out = tmp_path / 'out'
  report = convert('cifar10', out, tmp_path, train_shards=1000)
  assert report.counts == {'train': 50_000, 'test': 10_000}
  assert shard_manifest.verify(out).counts == report.counts
  train = [batches[f'data_batch_{i}'] for i in range(1, 6)]
  images, labels = (np.concatenate(part) for part in zip(*train, strict=True))
  check(out, 'train', images, labels, archives_made.CIFAR_CLASSES)
  check(out, 'test', *batches['test_batch'], archives_made.CIFAR_CLASSES)


def _photos(path):
  """Reads CIFAR-10 as the batches of its archive."""
  from PIL import Image

  found = {'train': ([], []), 'test': ([], [])}
  with tarfile.open(path) as tar:
    for member in tar:
      if member.isfile():
        split, label, _ = member.name.split('/')
        content = io.BytesIO(tar.extractfile(member).read())
        found[split][0].append(np.asarray(Image.open(content).convert('RGB')))
        found[split][1].append(archives_made.CIFAR_CLASSES.index(label))
  batches = {}
  for split, (images, labels) in found.items():
    images, labels = np.stack(images), np.array(labels, np.uint8)
    for i in range(len(labels) // 10_000):
      name = f'data_batch_{i + 1}' if split == 'train' else 'test_batch'
      part = slice(i * 10_000, (i + 1) * 10_000)
      batches[name] = images[part], labels[part]
  return batches
