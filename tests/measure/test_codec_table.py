"""The table of codecs: what is measured, and what is refused."""

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
    codec_table.codecs(['terniary'])


def test_rows_and_chart_of_one_case():
  codecs = codec_table.codecs(['identity'])
  rows = codec_table.measure(codecs, '1e+02', [(100,)], 1, False)
  kinds = ['native', 'XLA'] if native.available() else ['XLA']
  assert [row['kind'] for row in rows] == kinds
  table = codec_table.table(rows)
  assert (table['bits_by_length'] == 32 * 101 / 100).all()
  assert (table['encode_to_copy'] > 0).all()
  axes = codec_table.chart(table).axes
  assert [len(axis.lines) for axis in axes] == [len(kinds) + 1] * 3
