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
  # LeNet's 430,500 parameters; 20 digits a word, and a row of probes.
  assert float(coded['payload_bytes']) < float(plain['payload_bytes']) / 19
  assert float(plain['interface_bytes']) < 1.1 * float(plain['payload_bytes'])
