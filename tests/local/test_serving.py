"""What a helper does with requests, in the process of the test."""

import contextlib
import itertools
import os
import types

import numpy as np
import pytest
import tensorflow as tf

from terngrad.codec import policy
from terngrad.local import channel as channels
from terngrad.local import members as members_lib
from terngrad.local import options as options_lib
from terngrad.local import outer_state
from terngrad.local import outer_step
from terngrad.local import overlaps
from terngrad.local import serving
from terngrad.local import shared_memory

RATE = 0.5
EXCHANGE = {'do': channels.EXCHANGE, 'exchanges': 9}
FINISH = {'do': channels.FINISH, 'has_steps': True}
SPECS = (policy.VariableSpec('a', (3,)),)


class Killed(Exception):
  """The training process has ended before FINISH."""


class Training:
  """The training process of a helper: it changes its arrays as scripted.

  The parameters become smaller by a change, and the statistics larger.
  """

  def __init__(self, options, requests, restored=None):
    self.arrays = shared_memory.SharedArrays([(3,), (2,)])
    self._files = [os.memfd_create('states') for _ in range(2)]
    self._requests = iter(requests)
    self.found, self.statistics, self._saved = [], [], 0
    if restored is not None:
      shared_memory.write_states(self._files[0], restored)
    values = {
      'specs': [('a', [3])],
      'statistics': [[2]],
      'members': ['localhost:1'],
      'rank': 0,
      'restored': None if restored is None else 0,
      'rejoins': False,
    }
    descriptors = [self.arrays.descriptor, *self._files]
    with contextlib.suppress(Killed):
      serving.HelperServer(options, values, self, descriptors).serve()

  def receive(self):
    request, change = next(self._requests, (None, 0))
    if request is None:
      raise Killed
    self.arrays.inputs[0][...] = self.arrays.outputs[0] - np.float32(change)
    self.arrays.inputs[1][...] = self.arrays.outputs[1] + np.float32(change)
    return request

  def write(self, saved=None, joined=None, **answer):
    if saved is None and joined is None:
      self.found.append(self.arrays.outputs[0][0].copy())
      self.statistics.append(self.arrays.outputs[1][0])
    elif joined is None:
      self._saved = saved

  def states(self):
    return shared_memory.read_states(self._files[self._saved])


def made(**options):
  return options_lib.LocalOptions(1, outer_learning_rate=RATE, **options)


@pytest.mark.parametrize(
  ('before', 'now'), [*itertools.product(options_lib.OVERLAPS, repeat=2)]
)
def test_states_of_another_overlap_lose_no_change(before, now):
  first = Training(made(overlap=before), [(EXCHANGE, 1)])
  states = first.states()
  assert states['exchanges'] == 1
  requests = [(EXCHANGE, 1), (FINISH, 1)]
  second = Training(made(overlap=now), requests, restored=states)
  assert second.found[-1] == -3 * RATE
  # The mean of one process is its own.
  assert second.statistics[-1] == 3


def test_the_exchange_of_complete_is_counted():
  for overlap in options_lib.OVERLAPS:
    training = Training(made(overlap=overlap), [(EXCHANGE, 1), (FINISH, 1)])
    assert training.states()['exchanges'] == 2


@pytest.mark.parametrize(
  ('overlap', 'changes'),
  [('none', [np.nan, 1]), ('delayed', [1, 1]), ('eager', [np.nan, 1])],
)
def test_the_first_update_of_adam_moves_by_the_learning_rate(overlap, changes):
  requests = [(EXCHANGE, change) for change in changes]
  training = Training(
    made(overlap=overlap, outer='adam'), [*requests, (FINISH, 0)]
  )
  start, first, second = training.found[:3]
  assert first == start
  assert first - second == pytest.approx(RATE, rel=1e-5)


@pytest.mark.parametrize('overlap', options_lib.OVERLAPS)
def test_a_process_with_nan_takes_the_statistics_agreed_on_last(overlap):
  requests = [(EXCHANGE, change) for change in (1, np.nan, 2, np.inf)]
  training = Training(made(overlap=overlap), [*requests, (FINISH, 1)])
  assert training.statistics == [0, 1, 1, 3, 3, 4]
  training = Training(made(overlap=overlap), [*requests, (FINISH, np.nan)])
  assert training.statistics == [0, 1, 1, 3, 3, 3]


@pytest.mark.parametrize('overlap', options_lib.OVERLAPS)
@pytest.mark.parametrize('last', [EXCHANGE, FINISH])
def test_the_others_return_to_the_statistics_agreed_on_last(
  monkeypatch, overlap, last
):
  reduce = outer_step.OuterStep.reduce
  monkeypatch.setattr(
    outer_step.OuterStep,
    'reduce',
    # In the second exchange another process had NaN.
    lambda *a: reduce(*a)._replace(is_finite=a[-1] != 1),
  )
  requests = [(EXCHANGE, 1), (EXCHANGE, 1), (last, 2), (FINISH, 0)]
  training = Training(made(overlap=overlap), requests)
  # With an overlap they know it one exchange later.
  second = 1 if overlap == options_lib.NONE else 2
  assert training.statistics[:4] == [0, 1, second, 3]


@pytest.mark.parametrize('overlap', options_lib.OVERLAPS)
def test_statistics_without_a_finite_mean_are_not_taken(monkeypatch, overlap):
  means = iter([[np.full(2, 8, 'float32')], [np.full(2, np.inf, 'float32')]])
  monkeypatch.setattr(members_lib.Members, 'mean', lambda *a: next(means))
  requests = [(EXCHANGE, 1), (FINISH, 1)]
  assert Training(made(overlap=overlap), requests).statistics[-1] == 8


@pytest.mark.parametrize('overlap', options_lib.OVERLAPS)
def test_the_statistics_of_an_exchange_that_others_completed_are_taken(overlap):
  requests = [(EXCHANGE, 1), (EXCHANGE | {'exchanges': 0}, 5), (FINISH, 0)]
  assert Training(made(overlap=overlap), requests).statistics == [0, 1, 1, 1]


def outer(options, statistics=(), specs=SPECS):
  """A state and its step, of one worker."""
  exchange = members_lib.Members(['localhost:1'], 0, 60.0, {}).exchange
  step = outer_step.OuterStep(options, specs, exchange)
  return outer_state.OuterState(options, step, statistics), step


def test_states_without_a_number_of_updates_have_that_of_exchanges():
  state, _ = outer(made())
  state.exchanges = state.updates = 4
  states = state.states()
  del states['updates']
  found, _ = outer(made())
  found.load(states)
  assert found.updates == 4


def test_states_without_statistics_keep_those_of_the_process():
  found, _ = outer(made(), [np.ones(2, np.float32)])
  states = found.states()
  del states['statistics:0']
  found.load(states)
  assert found.statistics[0].tolist() == [1, 1]


@pytest.mark.parametrize(
  ('before', 'now'), [('muon', 'adam'), ('gd', 'nesterov'), ('nesterov', 'gd')]
)
def test_states_of_another_outer_optimizer_are_refused(before, now):
  _, saved = outer(made(outer=f'{before}:'))
  _, step = outer(made(outer=now))
  with pytest.raises(
    ValueError, match=f'outer: expected .* saved, {before}, received {now}. Giv'
  ):
    step.load(saved.states())


def test_states_without_the_name_of_their_optimizer_need_its_slots():
  _, saved = outer(made(outer='nesterov'))
  saved.apply([tf.constant([1.0, 2, 3])], 0)
  states = saved.states()
  del states['optimizer']
  _, step = outer(made(outer='nesterov:momentum=0.5'))
  step.load(states)
  assert step.states()['slot.momentum:0'].tolist() == [1, 2, 3]
  _, step = outer(made(outer='adam'))
  with pytest.raises(ValueError, match='saved, another one, received adam'):
    step.load(states)


@pytest.mark.parametrize('shapes', [[(4,)], [(3,), (3,)], [(3, 1)]])
def test_states_of_another_model_are_refused(shapes):
  _, saved = outer(made())
  specs = [policy.VariableSpec('a', shape) for shape in shapes]
  _, step = outer(made(), specs=specs)
  for loading, states in ((step, saved), (saved, step)):
    before = loading.states()
    with pytest.raises(ValueError, match='of the shapes .*, received states o'):
      loading.load(states.states())
    np.testing.assert_equal(loading.states(), before)


class Rejoining:
  """Three processes: two have 2 exchanges and 1 update, the last is behind.

  The first one to call sends.
  """

  def __init__(self, sent, pending=(0, 0)):
    self._sent, self._pending = sent, pending

  def gather(self, *numbers):
    rows = [[2, 1, 1], [2, 1, 1], [1, 1, 0]]
    return np.array([[*row, *self._pending] for row in rows])

  def broadcast(self, variables, source, assigns):
    assert source == 0
    if not self._sent:
      self._sent += [variable.numpy() for variable in variables]
    for variable, value in zip(variables, self._sent, strict=True):
      if assigns:
        variable.assign(value)


def test_processes_that_rejoin_have_equal_statistics_and_vectors():
  options = made(codec='ef21+topk:ratio=0.5', outer='adam')
  sent, vectors = [], []
  for scale, exchanges in ((1.0, 2), (3.0, 1)):
    state, step = outer(options, [np.full(2, scale, np.float32)])
    state.exchanges = exchanges
    state.updates = exchanges - 1
    step.reduce([scale * tf.constant([1.0, 2, 3])], 0)
    # As after an exchange with a process whose changes were others.
    for rows in step.declare_codec_states().devices[0].workers.values():
      rows[0].assign_add([5.0, 5, 5])
    state.agree(Rejoining(sent), [], True)
    assert (state.exchanges, state.updates) == (2, 1)
    assert state.statistics[0].tolist() == [1, 1]
    vectors.append(step.states())
  for name in ('codec.ef21_worker:0', 'codec.ef21_common:0'):
    for found in vectors:
      assert found[name].tolist() == [[0, 2, 3]]


def test_after_a_loss_the_processes_keep_their_own_shares_of_eager_updates():
  sent, sums, changes = [], [], []
  for share, exchanges in ((1.0, 2), (3.0, 2), (2.0, 1)):
    state, step = outer(made(overlap='eager'))
    state.exchanges = exchanges
    # A share is applied before the mean of the exchange is known.
    parameters = np.full(3, 10 - RATE * share, np.float32)
    step.assign([parameters])
    mean = tf.fill([3], 4.0)
    state.pending = overlaps.PendingChange([mean], [tf.fill([3], share)])
    state.agree(Rejoining(sent, (1, 1)), [], True)
    changes += [step.changes([parameters])[0].numpy()[0]] * (exchanges == 2)
    step.apply(state.pending.rest(), 0)
    sums.append(step.parameters[0].numpy()[0])
  # Training went on from these parameters: they are no change.
  assert changes == [0, 0]
  assert sums == [10 - RATE * 4] * 3


@pytest.mark.parametrize('overlap', ['delayed', 'eager'])
def test_a_process_that_is_behind_has_no_pending_change_if_the_others_have_none(
  overlap,
):
  sent, updates = [], []
  for exchanges in (2, 1):
    state, step = outer(made(overlap=overlap, outer='adam'), [np.ones(2, 'f')])
    state.exchanges, state.correction = exchanges, [np.full(2, 7.0, 'f')]
    state.agree(Rejoining(sent), [], True)
    assert state.pending == overlaps.NOTHING
    updates.append(state.updates)
    # That of the one behind is of another exchange.
    assert (state.correction[0] == 0).all() == (exchanges == 1)
  assert updates == [0, 1]


def test_more_bytes_than_an_int32_counts_are_reported():
  _, step = outer(made())
  pending = types.SimpleNamespace(
    step=types.SimpleNamespace(shared_probe=tf.zeros([1]))
  )
  reduced = types.SimpleNamespace(
    means=[[]],
    finite=[tf.constant([True])],
    pending=[pending],
    sent=tf.constant([2**29]),
  )
  step._compressor = types.SimpleNamespace(
    reduce_workers=lambda *arguments: reduced
  )
  assert step.reduce([], 0).sent_bytes == 4 * (2**29 + 1)
