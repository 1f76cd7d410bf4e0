import numpy as np
import pytest

from terngrad.measure import variance


@pytest.mark.parametrize(
  ('arrays', 'message'),
  [
    ({'a': np.zeros((2, 3)), 'b': np.zeros((3, 3))}, 'of the same workers'),
    ({'a': np.array([{}], object)}, 'a file that dump_gradients wrote'),
    ({'a': np.float32(1)}, 'of the same workers'),
    ({'a': np.zeros((0, 3))}, 'of the same workers'),
    ({}, 'of the same workers'),
  ],
)
def test_other_arrays_are_refused(tmp_path, arrays, message):
  np.savez(tmp_path / 'g.npz', **arrays)
  with pytest.raises(ValueError, match=message):
    variance.read(tmp_path / 'g.npz')


def test_other_files_are_refused(tmp_path):
  (tmp_path / 'g.npz').write_bytes(b'no archive')
  for name in ('g.npz', 'absent.npz'):
    with pytest.raises(ValueError, match='a file that dump_gradients wrote'):
      variance.read(tmp_path / name)
