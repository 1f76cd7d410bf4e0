"""A run that was interrupted continues from the states of its helper."""

import numpy as np
import pytest

from terngrad import errors
from terngrad.local import helper_process
from terngrad.local import local_steps
from terngrad.local import options as options_lib
from terngrad.local import shared_memory
from tests.local import small

ZEROS = [np.zeros(3, np.float32)]


def states_of(exchanges):
  return {'exchanges': np.array(exchanges), 'parameter:0': ZEROS[0]}


class CountingHelper:
  """Answers as a helper does; its state is the number of exchanges.

  `starts` has the number that each helper restored, None without states.
  """

  starts: list[int | None] = []
  is_lost = False

  def __init__(self, start, descriptors):
    _, values = options_lib.decode(start)
    self._files = descriptors[1:]
    self._exchanges, self._messages = 0, []
    restored = values['restored']
    self.starts.append(None)
    if restored is not None:
      states = shared_memory.read_states(self._files[restored])
      self._exchanges = self.starts[-1] = int(states['exchanges'])
    self._answer(assign=restored is None)

  def _answer(self, **more):
    self._messages.append({'exchanges': self._exchanges, **more})
    if not self.is_lost:
      states = states_of(self._exchanges)
      shared_memory.write_states(self._files[0], states)
      self._messages.append({'saved': 0})

  def wait_until_joined(self, seconds):
    assert seconds is None

  def write(self, **message):
    self._exchanges += message.get('has_steps', True)
    self._answer()

  def receive(self):
    if not self._messages:
      raise helper_process.HelperLost('lost before it saved')
    return self._messages.pop(0)

  def end(self):
    pass


@pytest.fixture(name='steps')
def make_steps(monkeypatch):
  monkeypatch.setattr(CountingHelper, 'starts', [])
  monkeypatch.setattr(helper_process, 'HelperProcess', CountingHelper)
  return local_steps.LocalSteps(2)


def exchanged(steps, count):
  """Starts and exchanges `count` times, and then counts a local step."""
  steps.start(ZEROS)
  for _ in range(count):
    steps.exchange(ZEROS)
  steps.count_step()


def test_start_continues_from_the_exchanges_of_an_interrupted_run(steps):
  exchanged(steps, 3)
  steps.start(ZEROS)
  assert CountingHelper.starts == [None, 3]
  # Of two steps one was taken before.
  assert steps.count_step()


def test_states_after_close_are_those_of_the_last_exchange(steps):
  steps.start(ZEROS)
  steps.complete(ZEROS)
  exchanged(steps, 3)
  states = steps.get_states()
  steps.close()
  np.testing.assert_equal(steps.get_states(), states)
  assert (states['exchanges'], states['steps']) == (3, 1)


def test_start_after_complete_is_new_unless_its_states_are_loaded(steps):
  for _ in range(2):
    steps.start(ZEROS)
    steps.complete(ZEROS)
  steps.load(steps.get_states())
  steps.start(ZEROS)
  assert CountingHelper.starts == [None, None, 0]


@pytest.mark.parametrize(
  ('states', 'restored'), [(states_of(7), 7), ({}, None)]
)
def test_loaded_states_replace_those_of_an_interrupted_run(
  steps, states, restored
):
  exchanged(steps, 3)
  steps.load(states)
  steps.start(ZEROS)
  assert CountingHelper.starts == [None, restored]


def test_states_that_were_loaded_during_a_run_do_not_outlive_it(steps):
  steps.start(ZEROS)
  steps.load(states_of(7))
  steps.exchange(ZEROS)
  steps.complete(ZEROS)
  assert steps.get_states()['exchanges'] == 1


def test_a_start_that_did_not_return_leaves_no_states(steps, monkeypatch):
  monkeypatch.setattr(CountingHelper, 'is_lost', True)
  with pytest.raises(errors.TrainingError):
    steps.start(ZEROS)
  monkeypatch.setattr(CountingHelper, 'is_lost', False)
  assert steps.get_states() == {}
  steps.start(ZEROS)
  assert CountingHelper.starts == [None, None]


def test_a_helper_that_is_lost_with_its_states_is_an_error_once(
  steps, monkeypatch
):
  steps.start(ZEROS)
  monkeypatch.setattr(CountingHelper, 'is_lost', True)
  steps.exchange(ZEROS)
  with pytest.raises(errors.TrainingError, match='lost before it saved'):
    steps.start(ZEROS)
  monkeypatch.setattr(CountingHelper, 'is_lost', False)
  steps.start(ZEROS)
  assert CountingHelper.starts == [None, None]


@pytest.mark.slow
@pytest.mark.parametrize('overlap', ['none', 'eager'])
def test_an_interrupted_run_ends_with_the_bits_of_an_undisturbed_one(overlap):
  found = []
  for interrupted in (None, 2):
    steps = local_steps.LocalSteps(
      1, outer='nesterov', outer_learning_rate=0.7, overlap=overlap
    )
    values, _ = small.begin()
    values = steps.start(values)
    for phase in range(4):
      if phase == interrupted:
        values = steps.start(values)
      trained, _ = small.train(values, [], 0, phase)
      values = steps.exchange(trained)
    found.append(steps.complete(values))
  for whole, continued in zip(*found, strict=True):
    np.testing.assert_array_equal(whole, continued)
