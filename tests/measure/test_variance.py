import io
import zipfile

import numpy as np
import pytest

from terngrad import errors
from terngrad.codec.methods.scalar import sign
from terngrad.codec.methods.sparse import topk
from terngrad.measure import variance


@pytest.mark.parametrize(
  ('arrays', 'message'),
  [
    (
      {'a': np.zeros((2, 3)), 'b': np.zeros((3, 3))},
      'the same number of workers',
    ),
    ({'a': np.array([{}], object)}, 'a file of `terngrad report gradients`'),
    ({'a': np.float32(1)}, 'the same number of workers'),
    ({'a': np.zeros((0, 3))}, 'the same number of workers'),
    ({}, 'the same number of workers'),
    ({'a': np.zeros((2, 3), complex)}, 'not numbers'),
  ],
)
def test_arrays_of_other_shapes_or_types_are_refused(tmp_path, arrays, message):
  np.savez(tmp_path / 'g.npz', **arrays)
  with pytest.raises(ValueError, match=message):
    variance.read(tmp_path / 'g.npz')


def test_missing_and_invalid_files_are_refused(tmp_path):
  (tmp_path / 'g.npz').write_bytes(b'no archive')
  for name in ('g.npz', 'absent.npz'):
    with pytest.raises(
      ValueError, match='a file of `terngrad report gradients`'
    ):
      variance.read(tmp_path / name)


def claiming(shape):
  """A file whose header has a shape without its elements."""
  content = io.BytesIO()
  header = {'descr': '<f4', 'fortran_order': False, 'shape': shape}
  np.lib.format.write_array_header_1_0(content, header)
  return content.getvalue()


@pytest.mark.parametrize(
  'spoil',
  [
    lambda path: path.write_bytes(claiming((0, 3))),
    lambda path: path.write_bytes(b''),
    lambda path: zipfile.ZipFile(path, 'w').writestr(
      'a.npy', claiming((2, 10**14))
    ),
  ],
)
def test_damaged_files_are_refused(spoil, tmp_path):
  path = tmp_path / 'g.npz'
  spoil(path)
  with pytest.raises(errors.ConfigError, match=f'{path}: expected a file of'):
    variance.read(path)


def gradients_of(workers):
  rng = np.random.default_rng(2)
  return [
    np.float32(rng.normal(size=(workers, *shape))) for shape in ((60, 50), (7,))
  ]


@pytest.mark.parametrize(
  'text', ['ternary:packing=huffman243', 'sign', 'topk', 'error_feedback+topk']
)
def test_error_of_one_worker_equals_the_error_of_the_mean(text):
  found = variance.errors(text, gradients_of(1), 2)
  assert found.one == pytest.approx(found.mean, rel=1e-5)


def test_error_of_one_worker_is_nan_with_two_rounds():
  found = variance.errors('powersgd', gradients_of(2), 1)
  assert np.isnan(found.one)
  assert 0 < found.mean < 1
  # P, Q, the vector as it is, and two norms.
  assert found.bits * 3007 == 32 * (60 + 50 + 7 + 2)


@pytest.fixture
def no_estimate(monkeypatch):
  """The codes `sign` and `topk` without `estimate`."""
  for kind in (sign.Sign, topk.TopK):
    monkeypatch.setattr(kind, 'estimates', False)
    monkeypatch.setattr(kind._twin, 'estimates', False)


@pytest.mark.parametrize('text', ['sign', 'topk:ratio=0.1'])
def test_error_of_one_worker_is_derived_without_estimate(text, request):
  expected = variance.errors(text, gradients_of(3), 2)
  request.getfixturevalue('no_estimate')
  found = variance.errors(text, gradients_of(3), 2)
  assert found.one == pytest.approx(expected.one, rel=1e-6)
  assert found.one > found.mean


def test_a_table_says_what_to_write_where_the_error_is_unknown():
  table = variance.table(
    [('g', gradients_of(2))], ['sign', 'powersgd', 'ternary'], 1
  )
  (note,) = variance.notes(table)
  assert note.startswith('powersgd: one is unknown.')
  assert 'define estimate' in note


def test_bits_count_only_the_used_words():
  huffman, base3, zeros = (
    variance.errors(text, gradients, 1).bits
    for text, gradients in (
      ('ternary:packing=huffman243', gradients_of(2)),
      ('ternary', gradients_of(2)),
      ('threshold:above=9', gradients_of(2)),
    )
  )
  assert huffman < 0.9 * base3
  assert zeros * 3007 == 32 * (1 + 2)


def test_bias_is_separated_from_variance():
  values = gradients_of(2)
  sign = variance.errors('sign', values, 2)
  assert sign.bias == pytest.approx(sign.mean)
  assert sign.mean_sem == pytest.approx(0, abs=1e-12)
  natural = variance.errors('natural', values, 8)
  assert abs(natural.bias) < 0.1 * natural.mean
  assert 0 < natural.mean_sem < 0.1 * natural.mean
  assert np.isnan(variance.errors('sign', values, 1).bias)


def test_a_codec_that_is_given_twice_is_measured_once():
  table = variance.table([('g', gradients_of(2))], ['ternary', 'ternary'], 1)
  assert list(table['codec']) == ['ternary'] and table['gain'][0] == 1


@pytest.mark.parametrize(
  'values', [[[0.0], [0.0]], [[1.0], [-1.0]], [[np.inf], [-np.inf]], [[np.nan]]]
)
def test_gradients_without_a_direction_are_refused(values):
  files = [('good', gradients_of(2)), ('bad', [np.float32(values)])]
  with pytest.raises(ValueError, match='norm above 0, received bad with'):
    variance.table(files, ['ternary'], 1)
