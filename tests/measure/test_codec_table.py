"""The table of codecs: what is measured, and what is refused."""

import numpy as np
import pytest

from slim import errors as data_errors
from terngrad import errors
from terngrad import native
from terngrad.measure import codec_table
from terngrad.measure import turns


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
  rows = [
    *codec_table.measure(
      'identity', '1e+02', [(100,)], 1, lambda: steps.append(1)
    )
  ]
  kinds = ['native', 'XLA'] if native.available() else ['XLA']
  assert [row['kind'] for row in rows] == kinds
  assert len(steps) == 2 * len(kinds)
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
@pytest.mark.gate_every(2)
def test_methods_of_any_kind_are_measured(text, works, bits):
  rows = [*codec_table.measure(text, 'case', [(20, 12), (10,)], 1)]
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
  rows = [*codec_table.measure_rivals('1e+02', [(100,)], 1)]
  assert [row['kind'] for row in rows] == ['rival'] * 3
  assert all('encode_to_copy' in row for row in rows)
  assert codec_table.line(rows[0]).endswith('1.6 bits')


@pytest.fixture
def counted(monkeypatch):
  """Works whose seconds a clock counts: 1 to compile, 1e-5 an element."""
  clock = [0.0]
  monkeypatch.setattr(codec_table.time, 'perf_counter', lambda: clock[0])
  measured = []

  def take(seconds):
    clock[0] += seconds

  def jobs(codec, values):
    measured.append(codec)
    take(1.0)
    size = values[0].shape[0]
    return {'encode': lambda times: take(times * size * 1e-5)}

  monkeypatch.setattr(codec_table.measures, 'jobs', jobs)
  monkeypatch.setattr(
    codec_table.timing, 'memory_copy', lambda size, times: lambda: take(0.001)
  )
  monkeypatch.setattr(
    codec_table, '_quality', lambda text, shapes, codec: ({'error': 0.5}, 0.0)
  )
  monkeypatch.setattr(
    codec_table,
    '_kinds',
    lambda text, shapes: {(text, 'native'): 'fast', (text, 'XLA'): 'slow'},
  )
  return measured


def kinds_of(rows):
  """Whether each implementation was measured."""
  return {row['kind']: codec_table.NOTE not in row for row in rows}


def test_what_would_exceed_the_budget_is_not_begun_and_says_so(counted):
  budget = turns.Budget(40)
  for size, expected in (
    (100, {'native': True, 'XLA': True}),
    # A work takes 1 s here: 2 in the plan, 2 to 7 in the rounds.
    (100_000, {'native': True, 'XLA': True}),
    # It would take 10 s, 7 times.
    (1_000_000, {'native': False, 'XLA': False}),
  ):
    counted.clear()
    rows = [
      *codec_table.measure('sign', f'{size}', [(size,)], 7, budget=budget)
    ]
    assert kinds_of(rows) == expected
    assert len(counted) == sum(expected.values())
  assert [codec_table.line(row) for row in rows] == [
    f'1000000  sign ({kind}): not measured: would exceed --max_seconds=40'
    for kind in ('native', 'XLA')
  ]


def test_the_smallest_size_is_measured_without_any_seconds(counted):
  budget = turns.Budget(0)
  rows = [*codec_table.measure('sign', '10', [(10,)], 7, budget=budget)]
  assert kinds_of(rows) == {'native': True, 'XLA': False}
  assert len(counted) == 1
  assert rows[0]['error'] == 0.5
  table = codec_table.table(rows)
  axes = codec_table.chart(table).axes
  # The one implementation, and the copy.
  assert [len(axis.lines) for axis in axes] == [2, 1, 1]


def test_a_row_comes_before_the_next_implementation_is_compiled(counted):
  rows = codec_table.measure('sign', '10', [(10,)], 1)
  assert next(rows)['kind'] == 'native'
  assert counted == ['fast']
  assert next(rows)['kind'] == 'XLA'


def test_seconds_that_run_out_during_a_piece_end_it(counted, monkeypatch):
  jobs = codec_table.measures.jobs

  def slower(codec, values):
    found = jobs(codec, values)
    if codec == 'slow':
      jobs(codec, values)
      for _ in range(40):
        jobs(codec, values)
    return found

  monkeypatch.setattr(codec_table.measures, 'jobs', slower)
  budget = turns.Budget(20)
  rows = [*codec_table.measure('sign', '10', [(10,)], 1, budget=budget)]
  assert kinds_of(rows) == {'native': True, 'XLA': False}
  assert budget.left < 0


def test_rivals_share_a_budget():
  budget = turns.Budget(0)
  rows = [*codec_table.measure_rivals('100', [(100,)], 1, budget)]
  assert [codec_table.NOTE in row for row in rows] == [False, True, True]
  assert rows[0]['encode_to_copy'] > 0
