"""The bench of local steps, in processes as its users start them."""

import subprocess
import sys

import pandas as pd
import pytest

from terngrad import errors
from terngrad.cli.measure import local_steps

PROGRAM = 'import sys; from terngrad.cli import main; sys.exit(main.run())'
PARAMETERS = 1_256_080


def run(*words):
  return subprocess.run(
    [sys.executable, '-c', PROGRAM, 'measure', 'local_steps', *words],
    capture_output=True,
    text=True,
    check=False,
  )


@pytest.mark.slow
@pytest.mark.cluster
def test_turns_with_exchanges_send_what_the_formula_says(tmp_path):
  done = run(
    *('--codec=fp16', '--every=2', '--exchanges=2', '--rounds=2'),
    *('--batch_size=2', '--processes=2', f'--output={tmp_path}'),
  )
  assert done.returncode == 0, done.stderr
  table = pd.read_csv(tmp_path / 'measure_local_steps.csv')
  (row,) = table.to_dict('records')
  assert (row['codec'], row['overlap'], row['every']) == ('fp16', 'delayed', 2)
  assert row['least ratio'] <= row['ratio'] <= row['largest ratio']
  assert row['ms computing'] > 0 and row['ms a step'] > 0
  # Half of the sum is sent by each process, and the other half of the result.
  assert row['formula bytes'] == pytest.approx(2 * PARAMETERS, rel=0.01)
  # TCP, gRPC and the other exchanges of a few bytes.
  assert 0 < row['excess'] < 0.03


@pytest.mark.parametrize(
  ('name', 'value', 'message'),
  [
    ('overlap', 'late', "received 'late'"),
    ('net', 'lenett', "received 'lenett'"),
    ('rounds', 0, 'rounds: expected'),
  ],
)
def test_invalid_options_are_refused(name, value, message):
  with pytest.raises(errors.ConfigError, match=message):
    local_steps.act(local_steps.MeasureLocalStepsFlags(**{name: value}))
