"""The program on two real processes."""

import csv

import pytest

from tests.bin import programs


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.parametrize('passes', ['--real', '--noreal'])
def test_the_interface_sends_little_more_than_the_payload(tmp_path, passes):
  done = programs.run(
    'measure_exchange',
    '--net=lenet',
    '--case=identity',
    '--case=ternary',
    '--rounds=1',
    passes,
    f'--output={tmp_path}',
  )
  assert done.code == 0, done.err
  with open(tmp_path / 'measure_exchange.csv', encoding='utf-8') as file:
    plain, coded = csv.DictReader(file)
  # LeNet's 1,256,080 parameters; 20 digits a word, and a row of probes.
  assert float(coded['payload_bytes']) < float(plain['payload_bytes']) / 19
  assert float(plain['interface_bytes']) < 1.1 * float(plain['payload_bytes'])


@pytest.mark.slow
@pytest.mark.cluster
def test_workers_push_and_pull_what_the_formula_says(tmp_path):
  done = programs.run(
    'measure_exchange',
    '--net=lenet',
    '--servers=1',
    '--case=identity',
    '--case=ternary',
    '--rounds=1',
    '--real',
    f'--output={tmp_path}',
  )
  assert done.code == 0, done.err
  with open(tmp_path / 'measure_exchange.csv', encoding='utf-8') as file:
    plain, coded = csv.DictReader(file)
  # Up 20 digits a word, down 13 sums of two codes.
  size = 4 * 1_256_080
  assert float(plain['payload_bytes']) == pytest.approx(2 * size, rel=1e-3)
  assert float(coded['payload_bytes']) == pytest.approx(
    size / 20 + size / 13, rel=1e-2
  )
  assert float(plain['interface_bytes']) == pytest.approx(2 * size, rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize(
  'case', ['ternary@all', 'ternary@gather@-1', 'ternary@gather@0@0']
)
def test_cases_that_cannot_be_are_refused(case):
  done = programs.run('measure_exchange', f'--case={case}')
  assert done.code == 2, done
  assert 'error: case: expected CODEC, CODEC@WAY or' in done.err
