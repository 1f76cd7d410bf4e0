import os
import pickle

import numpy as np
import pytest

from slim import errors
from slim.datasets.small_images import arrays
from slim.datasets.small_images import cifar10_source
from tests.slim import archives_made


class Evil:
  def __reduce__(self):
    return os.system, ('touch evil',)


def request(folder):
  return arrays.SourceOptions(str(folder), verify_checksums=False)


def check(source, batches):
  train = [batches[f'data_batch_{i}'] for i in range(1, 6)]
  for split, parts in (('train', train), ('test', [batches['test_batch']])):
    images, labels = source.splits[split]
    np.testing.assert_array_equal(images, np.concatenate([p[0] for p in parts]))
    np.testing.assert_array_equal(labels, np.concatenate([p[1] for p in parts]))


def test_both_archives_hold_the_images_and_the_binary_one_is_preferred(
  tmp_path,
):
  batches = archives_made.cifar()
  python = tmp_path / 'cifar-10-python.tar.gz'
  python.write_bytes(archives_made.cifar_python(batches))
  source = cifar10_source.from_best(request(tmp_path))
  assert source.description == str(python)
  check(source, batches)
  binary = tmp_path / 'cifar-10-binary.tar.gz'
  binary.write_bytes(archives_made.cifar_binary(batches))
  source = cifar10_source.from_best(request(tmp_path))
  assert source.description == str(binary)
  check(source, batches)


def test_a_pickle_that_calls_a_function_is_refused_without_the_call(
  tmp_path, monkeypatch
):
  monkeypatch.chdir(tmp_path)
  archive = archives_made.cifar_python(
    archives_made.cifar(), data_batch_3=pickle.dumps(Evil())
  )
  (tmp_path / 'cifar-10-python.tar.gz').write_bytes(archive)
  with pytest.raises(errors.DataError, match='data_batch_3: .*system'):
    cifar10_source.from_best(request(tmp_path))
  assert not (tmp_path / 'evil').exists()


@pytest.mark.parametrize(
  'batch',
  [{}, [], {b'data': 1, b'labels': []}, {b'data': b'', b'labels': [-1]}],
)
def test_a_pickle_without_images_is_refused(tmp_path, batch):
  archive = archives_made.cifar_python(
    archives_made.cifar(), test_batch=pickle.dumps(batch)
  )
  (tmp_path / 'cifar-10-python.tar.gz').write_bytes(archive)
  with pytest.raises(errors.DataError, match='test_batch: expected images'):
    cifar10_source.from_best(request(tmp_path))


def test_a_wrong_checksum_is_refused(tmp_path):
  archive = archives_made.cifar_binary(archives_made.cifar())
  (tmp_path / 'cifar-10-binary.tar.gz').write_bytes(archive)
  with pytest.raises(errors.DataError, match='expected sha256 c4a38c50.*--nov'):
    cifar10_source.from_best(arrays.SourceOptions(str(tmp_path)))


@pytest.mark.parametrize('missing', [10, 5000])
def test_a_cut_archive_is_refused(tmp_path, missing):
  archive = archives_made.cifar_binary(archives_made.cifar())
  (tmp_path / 'cifar-10-binary.tar.gz').write_bytes(archive[:-missing])
  with pytest.raises(errors.DataError, match='expected a complete tar'):
    cifar10_source.from_best(request(tmp_path))


def test_a_batch_that_is_missing_or_cut_is_refused(tmp_path):
  path = tmp_path / 'cifar-10-binary.tar.gz'
  batches = archives_made.cifar()
  batch = batches.pop('data_batch_2')
  path.write_bytes(archives_made.cifar_binary(batches))
  with pytest.raises(errors.DataError, match='archive with .*data_batch_2.bin'):
    cifar10_source.from_best(request(tmp_path))
  batches['data_batch_2'] = batch[0][:0], batch[1][:0]
  path.write_bytes(archives_made.cifar_binary(batches))
  with pytest.raises(errors.DataError, match='expected images of 3073 bytes'):
    cifar10_source.from_best(request(tmp_path))


def test_a_label_out_of_range_is_refused(tmp_path):
  batches = archives_made.cifar()
  batches['test_batch'][1][2] = 10
  (tmp_path / 'cifar-10-binary.tar.gz').write_bytes(
    archives_made.cifar_binary(batches)
  )
  with pytest.raises(errors.DataError, match='received label 10'):
    cifar10_source.from_best(request(tmp_path))


def test_a_folder_without_archives_is_refused(tmp_path):
  with pytest.raises(errors.DataError, match='received neither'):
    cifar10_source.from_best(request(tmp_path))
