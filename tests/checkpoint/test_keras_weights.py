"""How Keras's files name and order weights; `test_pretrained` has the rest."""

import h5py
import numpy as np
import pytest

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
