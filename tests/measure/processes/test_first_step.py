"""Seconds until the first step of a new process ends."""

import pytest

from terngrad import errors
from terngrad.children import captured
from terngrad.cli.measure import first_step as command
from terngrad.machine import xla_cache
from terngrad.measure import step_table
from terngrad.measure.processes import first_step

KERAS, XLA = step_table.KERAS_KINDS
COMMANDS = {KERAS: ['a'], XLA: ['b'], 'ternary, 1 nodes': ['c']}


@pytest.fixture
def processes(monkeypatch):
  """Stands in for processes: (words, flags of XLA) of each that was started."""
  started = []

  def run(words, environment):
    started.append((words, environment[xla_cache.VARIABLE]))
    seconds = {'a': 2.0, 'b': 4.0, 'c': 3.0}[words[0]] * (1 + len(started) % 2)
    found = first_step.FirstStep(seconds / 4, seconds)
    return captured.Captured(0, f'a warning\n{found.line()}\n')

  monkeypatch.setattr(captured, 'run', run)
  return started


def test_each_kind_runs_with_an_empty_cache_and_then_with_the_same(
  processes, monkeypatch
):
  own = f'--tf_xla_auto_jit=2 {xla_cache.FLAG}_directory=/x'
  monkeypatch.setenv(xla_cache.VARIABLE, own)
  first_step.measure(COMMANDS, 2, print)
  words, flags = zip(*processes, strict=True)
  assert [w[0] for w in words] == ['a', 'a', 'b', 'b', 'c', 'c'] * 2
  assert all(f.startswith('--tf_xla_auto_jit=2 ') for f in flags)
  assert not any('=/x' in f for f in flags)
  assert len(set(flags)) == 6
  assert flags[::2] == flags[1::2]


def test_ratios_are_to_keras_with_the_same_cache(processes):
  lines = []
  found = first_step.measure(COMMANDS, 1, lines.append)
  assert lines[:2] == [f'{KERAS}, cold: 4.0 s', f'{KERAS}, warm: 2.0 s']
  coded = found.loc['ternary, 1 nodes']
  seconds = coded['until the first step ends, s']
  assert seconds.to_dict() == {'cold': 6.0, 'warm': 3.0}
  assert coded['building, s'].to_dict() == {'cold': 1.5, 'warm': 0.75}
  assert coded[f'to {KERAS}'].to_dict() == {'cold': 1.5, 'warm': 1.5}
  assert coded[f'to {XLA}'].to_dict() == {'cold': 0.75, 'warm': 0.75}


def test_medians_are_over_rounds():
  rows = [
    (number, KERAS, 'cold', 1.0, seconds)
    for number, seconds in enumerate([2.0, 9.0, 4.0])
  ]
  found = first_step.table(rows)
  assert found.loc[(KERAS, 'cold'), 'until the first step ends, s'] == 4.0


def test_a_process_that_fails_is_named_with_its_lines(monkeypatch):
  ended = captured.Captured(-9, 'the last line\n')
  monkeypatch.setattr(captured, 'run', lambda *_: ended)
  with pytest.raises(errors.TrainingError, match='SIGKILL') as raised:
    first_step.measure(COMMANDS, 1, print)
  assert str(raised.value).startswith(f'{KERAS}: expected exit code 0')
  assert '  the last line\n' in str(raised.value)


def test_the_command_measures_one_kind_in_this_process(capsys):
  command.act(command.MeasureFirstStepFlags(in_process=KERAS, batch_size=2))
  found = first_step.read(capsys.readouterr().out)
  assert 0 < found.build < found.total


@pytest.mark.slow
def test_the_command_measures_all_kinds_in_new_processes(capsys, tmp_path):
  values = command.MeasureFirstStepFlags(
    batch_size=2, nodes=('2',), output=str(tmp_path)
  )
  command.act(values)
  lines = capsys.readouterr().out.splitlines()
  assert lines[0] == 'lenet, 28 px, 2'
  kinds = ['float32 towers', 'ternary, 2 nodes', KERAS, XLA]
  text = (tmp_path / 'measure_first_step.csv').read_text()
  rows = text.splitlines()[1:]
  assert len(rows) == 2 * len(kinds)
  assert all(kind in text for kind in kinds)
