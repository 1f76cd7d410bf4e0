"""The hooks of the log of epochs, beside those that they replace."""

import types

import pytest

from terngrad.report import epoch_log
from terngrad.training import execution


class Known(execution.Hooks):
  """Hooks whose attributes and results differ from the defaults."""

  log_every, save_secs, observe_secs, runs_ahead = 7, 60.0, 120.0, True

  def time_limit(self, what):
    return 'limit', what

  def local_time_limit(self, what):
    return 'local', what

  def before_save(self):
    raise RuntimeError('compared')

  def measure(self):
    return 'arrivals'


def test_all_but_lines_and_epochs_is_that_of_the_hooks_before(tmp_path):
  run = types.SimpleNamespace(hooks=Known(), epochs=None)
  made = epoch_log.EpochLog(tmp_path / 'log', {}, None, run)
  for name in 'log_every', 'save_secs', 'observe_secs', 'runs_ahead':
    assert getattr(made, name) == getattr(run.hooks, name)
  assert made.time_limit('Step 1') == ('limit', 'Step 1')
  assert made.local_time_limit('Step 1') == ('local', 'Step 1')
  assert made.measure() == 'arrivals'
  with pytest.raises(RuntimeError, match='compared'):
    made.before_save()


def test_no_hook_is_forgotten():
  known = {name for name in dir(execution.Hooks) if not name.startswith('_')}
  assert known == {
    *('log_every', 'save_secs', 'observe_secs', 'runs_ahead', 'time_limit'),
    *('local_time_limit', 'before_save', 'measure', 'line', 'epoch_ended'),
  }
