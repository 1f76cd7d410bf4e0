import subprocess
import sys

import pytest


def run(*arguments):
  return subprocess.run(
    [sys.executable, '-m', 'terngrad.bin.measure_step', *arguments],
    capture_output=True,
    text=True,
    check=False,
  )


@pytest.mark.slow
def test_both_ratios_and_the_cost_of_a_node_are_printed(tmp_path):
  done = run('--rounds=1', '--steps=1', '--nodes=2,4', f'--output={tmp_path}')
  assert done.returncode == 0, done.stderr
  for words in (
    'to float32 towers',
    'to plain Keras',
    'ternary, 2 nodes',
    'Each node after the first 2 adds',
  ):
    assert words in done.stdout
  assert (tmp_path / 'measure_step.csv').exists()


def test_nodes_that_do_not_divide_the_batch_are_refused():
  done = run('--nodes=3')
  assert done.returncode == 2
  assert 'multiple of the 3 nodes' in done.stderr
