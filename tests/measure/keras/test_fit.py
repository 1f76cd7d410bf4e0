"""The bench of Keras's fit, in a process that has one strategy."""

import subprocess
import sys

import pandas as pd
import pytest

from tests import forked

PROGRAM = 'import sys; from terngrad.cli import main; sys.exit(main.run())'


@pytest.mark.slow
def test_table_has_a_row_per_codec_relative_to_plain_keras(tmp_path):
  done = forked.run(
    *(None, PROGRAM, 'measure', 'fit', '--codec=ternary', '--num_gpus=1'),
    *('--batch_size=8', '--rounds=2', '--steps=2', f'--output={tmp_path}'),
  )
  assert done.returncode == 0, done.stderr
  table = pd.read_csv(tmp_path / 'measure_fit.csv', keep_default_na=False)
  assert list(table['codec']) == ['none', 'ternary']
  plain, coded = table.to_dict('records')
  assert plain['ratio'] == plain['least ratio'] == 1
  assert coded['least ratio'] <= coded['ratio'] <= coded['largest ratio']
  assert 0 < coded['least ms'] <= coded['ms a step']


@pytest.mark.slow
@pytest.mark.cluster
def test_processes_send_codes_and_have_equal_replicas(tmp_path):
  done = subprocess.run(
    [
      *(sys.executable, '-c', PROGRAM, 'measure', 'fit', '--processes=2'),
      *('--codec=ternary', '--net=lenet', '--optimizer=sgd', '--batch_size=8'),
      *('--rounds=1', '--steps=2', f'--output={tmp_path}'),
    ],
    capture_output=True,
    text=True,
    check=False,
  )
  assert done.returncode == 0, done.stderr
  table = pd.read_csv(tmp_path / 'measure_fit.csv', keep_default_na=False)
  assert table['equal'].all()
  plain, coded = table['MB sent']
  assert coded < plain / 15


def test_an_unknown_optimizer_is_refused_in_one_line():
  done = forked.run(
    *(None, PROGRAM, 'measure', 'fit', '--optimizer=nonsense'),
    *('--num_gpus=1', '--batch_size=8', '--rounds=1', '--steps=1'),
  )
  assert done.returncode == 2
  assert done.stderr.splitlines()[-1].startswith('error: optimizer: expected')
  assert 'Traceback' not in done.stderr
