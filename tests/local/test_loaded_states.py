"""Damaged states of local steps are refused before a helper starts."""

import numpy as np
import pytest

import terngrad
from terngrad import errors
from terngrad.local import loaded_states

PARAMETERS, STATISTICS = [[3], [2, 1]], [[2]]


def array(*shape):
  return np.ones(shape, np.float32)


GOOD = {
  'exchanges': np.array(2),
  'updates': np.array(1),
  'steps': np.array(0),
  'parameter:0': array(3),
  'parameter:1': array(2, 1),
  'pending_mean:0': array(3),
  'pending_mean:1': array(2, 1),
  'shift:0': array(3),
  'shift:1': array(2, 1),
  'shift:2': array(2),
  'statistics:0': array(2),
  'codec.residual:0': array(1, 3),
}


def test_states_of_a_run_are_accepted_also_older_and_without_statistics():
  loaded_states.check(GOOD, PARAMETERS, STATISTICS)
  needed = ('exchanges', 'parameter:0', 'parameter:1')
  old = {name: GOOD[name] for name in needed}
  loaded_states.check(old, PARAMETERS, STATISTICS)


@pytest.mark.parametrize(
  ('name', 'value'),
  [
    ('exchanges', None),
    ('exchanges', np.array(-1)),
    ('exchanges', np.array([1, 2])),
    ('exchanges', np.array(1.5)),
    ('updates', np.array(-5)),
    ('steps', np.array([1])),
    ('parameter:0', None),
    ('parameter:0', array(4)),
    ('parameter:0', np.ones(3)),
    ('parameter:0', np.float32([1, np.nan, 1])),
    ('pending_mean:1', None),
    ('pending_mean:0', array(2)),
    ('pending_local:0', array(3)),
    ('shift:0', array(1)),
    ('statistics:0', np.float32([1, np.inf])),
  ],
)
def test_damaged_states_are_refused_by_name(name, value):
  damaged = {k: v for k, v in GOOD.items() if k != name}
  if value is not None:
    damaged[name] = value
  expected = 'pending_local:1' if name == 'pending_local:0' else name
  with pytest.raises(
    errors.ConfigError, match=f'loaded states with {expected}, .* received'
  ):
    loaded_states.check(damaged, PARAMETERS, STATISTICS)


def test_start_refuses_foreign_states_and_starts_no_helper():
  steps = terngrad.LocalSteps(1)
  steps.load({'weights': array(3)})
  with pytest.raises(errors.ConfigError, match='with exchanges, .* none'):
    steps.start([array(3)])
  assert steps._supervisor is None


def test_names_of_another_number_than_the_parameters_are_refused():
  with pytest.raises(ValueError, match='each of 1 parameters, received 2'):
    terngrad.LocalSteps(1).start([array(3)], names=['a', 'b'])
