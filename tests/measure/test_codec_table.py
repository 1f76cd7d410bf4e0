"""The table of codecs: what is measured, and what is refused."""

import numpy as np
import pytest

from slim import errors as data_errors
from terngrad import errors
from terngrad import native
from terngrad.measure import codec_table


def test_cases_are_single_gradients_and_the_variables_of_nets():
  cases = codec_table.cases(['1e3', '16e6'], ['lenet'])
  assert cases['1e+03'] == [(1000,)]
  assert cases['1.6e+07'] == [(16_000_000,)]
  assert cases['lenet'][0] == (5, 5, 1, 20)
  assert list(cases) == ['1e+03', '1.6e+07', 'lenet']


@pytest.mark.parametrize('size', ['1.5', '0', '-3', 'inf', 'nan', 'many'])
def test_sizes_that_are_not_whole_numbers_are_refused(size):
  with pytest.raises(errors.ConfigError, match='whole numbers >= 1, received'):
    codec_table.cases([size], [])


def test_unknown_nets_and_codecs_are_refused():
  with pytest.raises(data_errors.UnknownNameError, match="'lenet'"):
    codec_table.cases([], ['lenat'])
  with pytest.raises(errors.ConfigError, match="Did you mean 'ternary'"):
    codec_table.check(['terniary'])
  with pytest.raises(errors.ConfigError, match="Did you mean 'ratio'"):
    codec_table.check(['error_feedback+topk:ration=0.1'])


def test_rows_and_chart_of_one_case():
  steps = []
  rows = codec_table.measure(
    'identity', '1e+02', [(100,)], 1, lambda: steps.append(1)
  )
  kinds = ['native', 'XLA'] if native.available() else ['XLA']
  assert [row['kind'] for row in rows] == kinds
  assert len(steps) == 2
  table = codec_table.table(rows)
  assert (table['bits_by_length'] == 32 * 101 / 100).all()
  assert (table['encode_to_copy'] > 0).all()
  axes = codec_table.chart(table).axes
  assert [len(axis.lines) for axis in axes] == [len(kinds) + 1] * 3


# Several messages, rounds and states, a SCATTER, draws in `decode`.
@pytest.mark.parametrize(
  ('text', 'works', 'bits'),
  [
    ('powersgd', 'probe encode decode decode_sum update', 32 * 44 / 250),
    pytest.param(
      'error_feedback+powersgd',
      'probe encode decode decode_sum finish update',
      32 * 44 / 250,
      marks=pytest.mark.slow,
    ),
    (
      'error_feedback+topk:ratio=0.1',
      'probe encode decode decode_sum update',
      None,
    ),
    ('randomk:ratio=0.1', 'probe encode decode decode_sum update', None),
    pytest.param(
      *('bidirectional+sign', 'probe encode decode_sum', None),
      marks=pytest.mark.slow,
    ),
  ],
)
def test_methods_of_any_kind_are_measured(text, works, bits):
  rows = codec_table.measure(text, 'case', [(20, 12), (10,)], 1)
  assert [row['kind'] for row in rows] in (
    ['graph'],
    ['XLA'],
    ['native', 'XLA'],
    ['native', 'graph'],
  )
  for row in rows:
    found = [key.removesuffix('_to_copy') for key in row if 'to_copy' in key]
    assert found == works.split()
    assert 0 < row['error'] < 1
    assert np.isfinite(row['bits_by_formula'])
    line = codec_table.line(row)
    assert line.startswith(f'case  {text} ({row["kind"]}): copies: probe ')
    assert f'error {row["error"]:.3g}' in line
  if bits:
    # P, Q, and the vector as it is: 20 + 12 + 10, then two norms.
    assert rows[0]['bits_by_length'] == pytest.approx(bits)


def test_rivals_are_rows_too():
  rows = codec_table.measure_rivals('1e+02', [(100,)], 1)
  assert [row['kind'] for row in rows] == ['rival'] * 3
  assert all('encode_to_copy' in row for row in rows)
  assert codec_table.line(rows[0]).endswith('1.6 bits')
