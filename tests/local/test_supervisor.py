"""A helper that is lost after its answer leaves a correction, once."""

import contextlib
import json
import os
import socket

import numpy as np
import pytest

from terngrad import errors
from terngrad.local import helper_process
from terngrad.local import local_steps
from terngrad.local import shared_memory
from terngrad.local import supervisor
from tests.exchange import processes

OPTIONS = {'every': 1, 'overlap': 'eager'}
STATES = {'exchanges': np.array(1), 'parameter:0': np.zeros(3, np.float32)}


class ScriptedHelper:
  """Answers as a helper does, and writes its outputs.

  The first helper is lost before it saves the state after its first exchange;
  the next one repeats the exchange, with another result.
  """

  results = iter(())

  def __init__(self, start, descriptors):
    self._arrays = shared_memory.SharedArrays([(3,)], descriptors[0])
    self._files = descriptors[1:]
    self._messages = [{'exchanges': 0, 'assign': False}]
    self._save()

  def _save(self):
    shared_memory.write_states(self._files[0], STATES)
    self._messages.append({'saved': 0})

  def wait_until_joined(self, seconds):
    assert seconds is None

  def write(self, **message):
    result = next(self.results)
    self._arrays.outputs[0][...] = result
    self._messages.append({'exchanges': 1})
    if result != 1:
      self._save()

  def receive(self):
    if not self._messages:
      raise helper_process.HelperLost('lost in the exchange')
    return self._messages.pop(0)

  def end(self):
    pass


@pytest.fixture(name='steps')
def make_steps(monkeypatch):
  ScriptedHelper.results = iter([1, 5, 0, 0])
  monkeypatch.setattr(helper_process, 'HelperProcess', ScriptedHelper)
  hosts = {'worker': ['localhost:1', 'localhost:2']}
  config = {'cluster': hosts, 'task': {'type': 'worker', 'index': 0}}
  monkeypatch.setenv('TF_CONFIG', json.dumps(config))
  made = local_steps.LocalSteps(**OPTIONS)
  made.start([np.zeros(3, np.float32)])
  return made


class LateHelper(ScriptedHelper):
  """Another process does not join the first helper in time."""

  limits = []

  def wait_until_joined(self, seconds):
    self.limits.append(seconds)
    if len(self.limits) == 1:
      raise helper_process.HelperLost('some process did not join')


def test_a_process_lost_before_it_joins_is_left_out(monkeypatch):
  monkeypatch.setattr(helper_process, 'HelperProcess', LateHelper)
  monkeypatch.setattr(LateHelper, 'limits', [])
  addresses, asked = processes.addresses(3), []

  def remaining(addresses, rank, is_first=False):
    asked.append((len(addresses), rank, is_first))
    return [*range(len(addresses))] if is_first else [1, 2]

  monkeypatch.setattr(supervisor.membership, 'remaining', remaining)
  config = {
    'cluster': {'worker': addresses},
    'task': {'type': 'worker', 'index': 2},
  }
  monkeypatch.setenv('TF_CONFIG', json.dumps(config))
  made = local_steps.LocalSteps(**OPTIONS, on_lost_worker='continue')
  made.start([np.zeros(3, np.float32)])
  assert asked == [(3, 2, True), (3, 2, False)]
  assert LateHelper.limits == [supervisor._JOIN_SECONDS] * 2
  assert made._supervisor.members == tuple(addresses[1:])
  assert made._supervisor.rank == 1
  # Nor is it waited for later.
  made.close()
  made.start([np.zeros(3, np.float32)])
  assert asked[2:] == [(2, 1, True)]
  assert made.rank == 2


def test_a_port_in_use_is_refused_before_a_process_waits(monkeypatch):
  with socket.create_server(('127.0.0.1', 0)) as server:
    hosts = [f'127.0.0.1:{server.getsockname()[1]}', 'localhost:1']
    config = {
      'cluster': {'worker': hosts},
      'task': {'type': 'worker', 'index': 0},
    }
    monkeypatch.setenv('TF_CONFIG', json.dumps(config))
    made = local_steps.LocalSteps(**OPTIONS, on_lost_worker='continue')
    with pytest.raises(errors.ConfigError, match='expected to listen on its'):
      made.start([np.zeros(3, np.float32)])


def open_files():
  """Anonymous files of this process, by descriptor."""
  found = []
  for name in os.listdir('/proc/self/fd'):
    with contextlib.suppress(FileNotFoundError):
      target = os.readlink(f'/proc/self/fd/{name}')
      found += [name] * ('memfd:terngrad' in target)
  return found


def test_shared_memory_is_freed_when_training_ends(steps):
  steps.close()
  before = len(open_files())
  for _ in range(3):
    steps.start([np.zeros(3, np.float32)])
  assert len(open_files()) > before
  steps.close()
  assert len(open_files()) <= before


def inputs(steps):
  return steps._supervisor.arrays.inputs[0].tolist()


def test_a_checkpoint_does_not_take_the_correction_of_a_repeated_exchange(
  steps,
):
  (value,) = steps.exchange([np.zeros(3, np.float32)])
  assert value.tolist() == [1, 1, 1]
  for _ in range(2):
    steps.get_states()
  # Trained by 10 from the answer of the lost helper, 4 below that of the next.
  steps.exchange([value + 10])
  assert inputs(steps) == [15, 15, 15]
  steps.exchange([value])
  assert inputs(steps) == [1, 1, 1]


def test_a_run_resumed_from_that_checkpoint_starts_with_the_correction(steps):
  (value,) = steps.exchange([np.zeros(3, np.float32)])
  resumed = local_steps.LocalSteps(**OPTIONS)
  resumed.load(steps.get_states())
  (found,) = resumed.start([value])
  assert found.tolist() == [5, 5, 5]
  assert not [name for name in resumed.get_states() if 'shift' in name]
