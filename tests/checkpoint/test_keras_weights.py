"""How Keras's files name and order weights; `test_pretrained` has the rest."""

import contextlib
import io
import re
import zipfile

import h5py
import numpy as np
import pytest

from terngrad import errors
from terngrad.checkpoint import keras_weights

ORDER = ['block/conv1/kernel', 'block/conv1/bias', 'fc/kernel', 'fc/bias']
VALUES = {name: np.full([2, 3], i, np.float32) for i, name in enumerate(ORDER)}


def assert_read(path):
  source = keras_weights.open_file(str(path), ORDER)
  assert source.unexpected == []
  assert source.shapes == dict.fromkeys(ORDER, [2, 3])
  for name, value in VALUES.items():
    np.testing.assert_array_equal(source.read(name), value, name)


@pytest.mark.parametrize('named', [True, False])
def test_a_layer_is_named_by_its_attribute_or_its_group(named, tmp_path):
  with h5py.File(tmp_path / 'net.weights.h5', 'w') as file:
    for i, (name, value) in enumerate(VALUES.items()):
      layer = name.rpartition('/')[0]
      group = f'layers/dense_{i // 2}' if named else layer
      file[f'{group}/vars/{i % 2}'] = value
      if named:
        file[f'{group}/vars'].attrs['name'] = layer
  assert_read(tmp_path / 'net.weights.h5')


@pytest.mark.parametrize('start', ['', 'model_weights/'])
def test_an_older_file_holds_only_weights_or_the_whole_model(start, tmp_path):
  order = ['conv1/kernel', 'conv1/bias']
  with h5py.File(tmp_path / 'net.h5', 'w') as file:
    for i, name in enumerate(order):
      file[f'{start}conv1/{name}:0'] = np.full([4], i, np.float32)
    file[f'{start}other/other/kernel:0'] = np.zeros([4], np.float32)
  source = keras_weights.open_file(str(tmp_path / 'net.h5'), order)
  assert source.unexpected == ['other/kernel']
  assert [source.read(name)[0] for name in order] == [0, 1]


def content():
  """A `.weights.h5` file."""
  buffer = io.BytesIO()
  with h5py.File(buffer, 'w') as file:
    for i, (name, value) in enumerate(VALUES.items()):
      file[f'{name.rpartition("/")[0]}/vars/{i % 2}'] = value
  return buffer.getvalue()


def read_all(path):
  source = keras_weights.open_file(str(path), ORDER)
  for name in source.shapes:
    source.read(name)


def test_every_flip_in_a_heap_of_names_is_refused_or_harmless(tmp_path):
  path, whole = tmp_path / 'net.weights.h5', content()
  start, refused = whole.index(b'HEAP'), 0
  for offset in range(start, start + 32):
    damaged = bytearray(whole)
    damaged[offset] ^= 0x80
    path.write_bytes(damaged)
    with contextlib.suppress(errors.CheckpointError):
      read_all(path)
      continue
    refused += 1
  # Four bytes are reserved and one is of a number that may be larger.
  assert refused >= 27


@pytest.mark.parametrize(
  ('before', 'value', 'message'),
  [
    # The flags and the compression in the central directory.
    (b'PK\1\2' + 4 * b'.', 1, 'is encrypted'),
    (b'PK\1\2' + 6 * b'.', 99, 'compression method is not supported'),
    # The first compressed byte.
    (b'model.weights.h5', 0xFF, 'Error -3'),
  ],
)
def test_an_archive_that_cannot_be_unpacked_is_refused(
  before, value, message, tmp_path
):
  path = tmp_path / 'net.keras'
  with zipfile.ZipFile(path, 'w', zipfile.ZIP_DEFLATED) as archive:
    archive.writestr('model.weights.h5', content())
  damaged = bytearray(path.read_bytes())
  damaged[re.search(before, damaged, re.DOTALL).end()] = value
  path.write_bytes(damaged)
  with pytest.raises(errors.CheckpointError, match=f'Keras .*{message}'):
    read_all(path)


def test_a_file_that_is_damaged_after_it_was_opened_is_refused(tmp_path):
  path = tmp_path / 'net.weights.h5'
  path.write_bytes(content())
  source = keras_weights.open_file(str(path), ORDER)
  path.write_bytes(b'no weights')
  with pytest.raises(errors.CheckpointError, match='Keras .* signature'):
    source.read(ORDER[0])
