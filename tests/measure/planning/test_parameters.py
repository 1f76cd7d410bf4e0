"""Parameters are fitted to steps, stored in files, and validated on reading."""

import pytest

from terngrad import errors
from terngrad.measure.planning import model
from terngrad.measure.planning import parameters as parameters_lib

SHAPES = [(1000, 1000)]
TRUE = parameters_lib.Parameters(
  'made up',
  computing=0.05,
  overlap=0.5,
  efficiency=0.8,
  latency=1e-4,
  coding=2.0,
  codes={
    'identity': model.Coding(1e-9, 1e-9, 1e-9),
    'ternary': model.Coding(1e-8, 4e-9, 2e-9),
    'eden:bits=2': model.Coding(6e-8, 4e-8, 2e-8),
  },
)
UNKNOWN = TRUE._replace(computing=0.0, overlap=0.0, efficiency=1.0, coding=1.0)
CASES = [
  (text, workers, rate)
  for text in TRUE.codes
  for workers in (2, 4)
  for rate in (1e7, 1e8, 1e9)
]


def measured(text, workers, rate):
  seconds = TRUE.plan(text, SHAPES, rate, workers).step
  return parameters_lib.MeasuredSeconds(text, workers, rate, seconds)


def test_fit_recovers_the_parameters_of_the_steps():
  steps = [measured(*case) for case in CASES]
  found = parameters_lib.fit(UNKNOWN, steps, SHAPES)
  assert found.computing == pytest.approx(0.05, rel=0.02)
  assert found.overlap == pytest.approx(0.5, abs=0.03)
  assert found.efficiency == pytest.approx(0.8, rel=0.01)
  assert found.coding == pytest.approx(2.0, rel=0.05)
  errors_of = parameters_lib.compare(found, steps, SHAPES)['error'].abs()
  assert errors_of.max() < 0.01


def test_fit_with_free_codecs_keeps_the_coding_factor():
  free = dict.fromkeys(TRUE.codes, model.Coding(0.0, 0.0, 0.0))
  steps = [measured('identity', 2, rate) for rate in (1e6, 1e7, 1e8, 1e9)]
  found = parameters_lib.fit(UNKNOWN._replace(codes=free), steps, SHAPES)
  assert found.coding == 1.0


def test_fit_needs_a_step_per_fitted_parameter():
  steps = [measured(*case) for case in CASES[:3]]
  with pytest.raises(errors.ConfigError, match='at least 4 steps, received 3'):
    parameters_lib.fit(UNKNOWN, steps, SHAPES)


def test_errors_are_relative_to_the_measurement():
  step = measured('ternary', 2, 1e8)
  half = step._replace(seconds=step.seconds / 2)
  (row,) = parameters_lib.compare(TRUE, [half], SHAPES).to_dict('records')
  assert row['error'] == pytest.approx(1.0)
  assert (row['workers'], row['Mbit/s']) == (2, 100)


def test_written_parameters_are_read_back_exactly(tmp_path):
  path = tmp_path / 'parameters.json'
  parameters_lib.write(path, TRUE)
  assert parameters_lib.read(path) == TRUE


@pytest.mark.parametrize(
  ('old', 'new'),
  [
    ('"computing": 0.05', '"computing": NaN'),
    ('"computing": 0.05', '"computing": -1'),
    ('"computing": 0.05', '"computing": "0.05"'),
    ('"computing": 0.05', '"seconds": 0.05'),
    ('"efficiency": 0.8', '"efficiency": 0'),
    ('"overlap": 0.5', '"overlap": 1.5'),
    ('"send": 1e-09', '"send": true'),
    ('"send"', '"sent"'),
    ('{', '[' * 100_000),
    ('{', '\udcff{'),
  ],
)
def test_error_names_an_invalid_parameters_file(tmp_path, old, new):
  path = tmp_path / 'parameters.json'
  parameters_lib.write(path, TRUE)
  text = path.read_text().replace(old, new, 1)
  path.write_bytes(text.encode('utf-8', 'surrogateescape'))
  with pytest.raises(errors.ConfigError, match='parameters.json'):
    parameters_lib.read(path)


def table_of(tmp_path, *rows):
  path = tmp_path / 'exchange.csv'
  header = 'case,processes,elements,milliseconds'
  path.write_text('\n'.join([header, *rows]) + '\n')
  return path


def test_measured_steps_exclude_peers_and_explicit_algorithms(tmp_path):
  path = table_of(
    tmp_path,
    'ternary,3,1000000,250.0',
    'ternary@gather@0,3,1000000,300.0',
    '"ddp:hook=powersgd,rank=1",3,1000000,400.0',
  )
  found, left_out = parameters_lib.read_measured(f'{path}@1e8', SHAPES)
  assert found == [parameters_lib.MeasuredSeconds('ternary', 3, 1e8, 0.25)]
  assert left_out == ['ternary@gather@0', 'ddp:hook=powersgd,rank=1']


@pytest.mark.parametrize('rate', ['', 'fast', '0', 'inf', 'nan'])
def test_measured_steps_need_a_bandwidth(tmp_path, rate):
  path = table_of(tmp_path, 'ternary,3,1000000,250.0')
  with pytest.raises(errors.ConfigError, match='FILE@BITS'):
    parameters_lib.read_measured(f'{path}@{rate}', SHAPES)


def test_measured_steps_of_another_net_or_file_are_refused(tmp_path):
  path = table_of(tmp_path, 'ternary,3,999,250.0')
  with pytest.raises(errors.ConfigError, match='1,000,000 parameters'):
    parameters_lib.read_measured(f'{path}@1e8', SHAPES)
  path.write_text('case,step\nternary,1\n')
  with pytest.raises(errors.ConfigError, match='exchange.csv'):
    parameters_lib.read_measured(f'{path}@1e8', SHAPES)


@pytest.mark.parametrize(
  'numbers', ['3,1000000,0', '3,1000000,', '3,1000000,inf', '0,1000000,9']
)
def test_steps_without_a_time_or_processes_are_refused(tmp_path, numbers):
  path = table_of(tmp_path, 'identity,3,1000000,250.0', f'ternary,{numbers}')
  with pytest.raises(errors.ConfigError, match='above 0, received ternary in'):
    parameters_lib.read_measured(f'{path}@1e8', SHAPES)


def test_parameters_that_cannot_be_written_are_one_error(tmp_path):
  with pytest.raises(errors.TrainingError, match='expected to write'):
    parameters_lib.write(tmp_path / 'none/known.json', TRUE)
