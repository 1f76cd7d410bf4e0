"""The program on two real processes."""

import csv
import os
import subprocess
import sys

import pytest

from tests.bin import programs
from tests.scripts import test_single

# The interface also counts the bytes of all other programs on this machine.
needs_network = pytest.mark.skipif(
  not test_single.can_unshare(), reason='no user namespaces, or no ip'
)


def measured_alone(folder, *arguments):
  """The rows of a program with a separate loopback interface."""
  program = [sys.executable, '-m', 'terngrad.bin.measure_exchange']
  done = subprocess.run(
    [
      *('unshare', '--map-root-user', '--net', 'bash', '-c'),
      *('ip link set lo up && exec "$@"', 'bash', *program, '--net=lenet'),
      *(*arguments, f'--output={folder}'),
    ],
    env=os.environ | programs.QUIET,
    capture_output=True,
    text=True,
    timeout=programs.LIMIT,
  )
  assert done.returncode == 0, done.stderr
  with open(folder / 'measure_exchange.csv', encoding='utf-8') as file:
    return list(csv.DictReader(file))


def measured(folder, *arguments):
  """The rows of LeNet's plain floats and of its ternary codes."""
  cases = '--case=identity', '--case=ternary', '--rounds=1'
  return measured_alone(folder, *cases, *arguments)


@needs_network
@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.parametrize('passes', ['--real', '--noreal'])
def test_the_interface_sends_little_more_than_the_payload(tmp_path, passes):
  plain, coded = measured(tmp_path, passes)
  # LeNet's 1,256,080 parameters; 20 digits a word, and a row of probes.
  assert float(coded['payload_bytes']) < float(plain['payload_bytes']) / 19
  assert float(plain['interface_bytes']) < 1.1 * float(plain['payload_bytes'])
  assert (plain['threads'], plain['peer']) == ('1', '')
  assert coded['processor'] and coded['oneDNN'] in ('on', 'off')


@needs_network
@pytest.mark.slow
@pytest.mark.cluster
def test_workers_push_and_pull_the_bytes_of_the_formula(tmp_path):
  plain, coded = measured(tmp_path, '--servers=1', '--real')
  # Up 20 digits a word, down 13 sums of two codes.
  size = 4 * 1_256_080
  assert float(plain['payload_bytes']) == pytest.approx(2 * size, rel=1e-3)
  assert float(coded['payload_bytes']) == pytest.approx(
    size / 20 + size / 13, rel=1e-2
  )
  assert float(plain['interface_bytes']) == pytest.approx(2 * size, rel=0.1)


@needs_network
@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.parametrize('processes', [2, 3, 4])
def test_codes_in_both_directions_send_the_bytes_of_the_formula(
  tmp_path, processes
):
  texts = 'ternary@gather', 'bidirectional+ternary', 'bidirectional+sign'
  rows = measured_alone(
    tmp_path,
    *('--rounds=5', f'--processes={processes}'),
    *(f'--case={text}' for text in texts),
  )
  size = 4 * 1_256_080
  # Each to all others; and parts there and back, with a row of probes.
  bits = (
    (processes - 1) / 20,
    *(2 * (processes - 1) / processes / elements for elements in (20, 32)),
  )
  for row, expected in zip(rows, bits, strict=True):
    payload = float(row['payload_bytes'])
    assert payload == pytest.approx(size * expected, rel=0.02)
    assert float(row['interface_bytes']) == pytest.approx(payload, rel=0.1)


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.parametrize(
  ('bandwidth', 'algorithm', 'words'),
  [('1e9', 'gather', 3 / 20), ('1e7', 'two_shot', 3 / 4 * (1 / 20 + 1 / 10))],
)
def test_auto_chooses_the_fastest_algorithm_for_the_given_bandwidth(
  tmp_path, bandwidth, algorithm, words
):
  # The sums of four codes have nine levels, ten digits a word.
  (row,) = programs.measured(
    'measure_exchange',
    tmp_path,
    *('--net=lenet', '--rounds=1', '--processes=4', '--case=ternary'),
    f'--bandwidth={bandwidth}',
  )
  assert set(row['algorithms'].split('+')) == {algorithm}
  payload = float(row['payload_bytes'])
  assert payload == pytest.approx(4 * 1_256_080 * words, rel=0.02)
