"""The plan of a network, from flags, from a file and from measured steps."""

import pandas as pd
import pytest

from terngrad import errors
from terngrad.cli import plan
from terngrad.measure.planning import model
from terngrad.measure.planning import parameters as parameters_lib

SIZE = 1024 * 1000
KNOWN = parameters_lib.Parameters(
  'a test',
  computing=0.1,
  overlap=0.0,
  efficiency=1.0,
  latency=0.0,
  coding=1.0,
  codes={
    'identity': model.Coding(0.0, 0.0, 0.0),
    'ternary': model.Coding(1e-9, 1e-9, 1e-9),
    'fp16': model.Coding(1e-9, 1e-9, 1e-9),
  },
)
CODES = ('ternary', 'fp16')


def flags(tmp_path, **others):
  path = tmp_path / 'known.json'
  parameters_lib.write(path, KNOWN)
  return plan.PlanFlags(
    elements=SIZE, parameters=str(path), codecs=CODES, **others
  )


def table_of(tmp_path, name, rate, factor=1.0):
  """A table of steps that take what the plan says, times a factor."""
  steps = [
    KNOWN.plan(text, [(1024, 1000)], rate, 2).step for text in KNOWN.codes
  ]
  pd.DataFrame(
    {
      'case': list(KNOWN.codes),
      'processes': 2,
      'elements': SIZE,
      'milliseconds': [1e3 * factor * seconds for seconds in steps],
    }
  ).to_csv(tmp_path / name, index=False)
  return f'{tmp_path / name}@{rate:g}'


def test_parameters_replace_timing_and_are_written_again(tmp_path, capsys):
  plan.act(flags(tmp_path, bandwidth=1e7, output=str(tmp_path / 'out')))
  out = capsys.readouterr().out
  assert 'fastest: ternary' in out
  table = pd.read_csv(tmp_path / 'out' / 'plan.csv').set_index('codec')
  assert table['over float32']['identity'] == 1
  assert table['over fp16']['fp16'] == 1
  assert (tmp_path / 'out' / 'plan.png').stat().st_size
  again = parameters_lib.read(tmp_path / 'out' / 'parameters.json')
  assert again == KNOWN


def test_errors_of_fitted_and_compared_steps_are_printed(tmp_path, capsys):
  fitted = table_of(tmp_path, 'a.csv', 1e8), table_of(tmp_path, 'b.csv', 1e7)
  beside = (table_of(tmp_path, 'c.csv', 1e6, factor=1.25),)
  plan.act(flags(tmp_path, fitted_to=fitted, beside=beside))
  out = capsys.readouterr().out
  first, second = [
    line for line in out.splitlines() if line.startswith('median error')
  ]
  assert float(first.split()[2].rstrip('%;')) < 0.5
  # Planned are 1 / 1.25 of what was measured.
  assert -21 < float(second.split()[5].rstrip('%,')) < -19
  assert 'fitted: 0.1' in out


def test_seconds_or_a_replacement_are_required():
  with pytest.raises(errors.ConfigError, match='seconds: expected'):
    plan.act(plan.PlanFlags(elements=SIZE))
