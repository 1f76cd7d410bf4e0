"""What methods remember, through a checkpoint and back."""

import re
import types

import numpy as np
import pytest
import tensorflow as tf

from terngrad import errors
from terngrad.checkpoint import checkpoints
from terngrad.checkpoint import resume
from terngrad.checkpoint import sources
from terngrad.checkpoint import stored_states
from terngrad.cluster import coordination
from terngrad.codec.methods import updates
from terngrad.codec.methods.wrappers import bidirectional
from terngrad.exchange import towers
from terngrad.step import replicas
from tests.exchange import threads
from tests.step import small

# The logits travel before the other two variables.
PART_BYTES = 200
KINDS = (
  'error_feedback+topk:ratio=0.1',
  'error_feedback+powersgd:min_compression=0.1',
  'error_feedback+sign:decide=majority',
)
# They have states of workers, and of all workers, of several kinds.
UPDATES = (
  'ef21_sgdm+topk:ratio=0.1',
  'diana+natural',
  'demo:count=4',
  'one_bit_adam+sign',
)
# It has states of ranges of variables.
RANGES = 'error_feedback+bidirectional+topk:ratio=0.1'
# Workers keep moments and parameters of their own between two exchanges.
LOCAL = {
  'local': small.Local(2, 'adamw', 0.7, keeps=True, overlap=1),
  'fragments': 2,
}


class Opened:
  """A training of one process, and its files."""

  def __init__(
    self,
    folder,
    codec='ternary',
    part_bytes=PART_BYTES,
    workers=4,
    **options,
  ):
    devices = '/CPU:0', '/CPU:1'
    self.exchange = towers.Towers(devices, workers)
    self.training = small.Training(
      small.dense_net,
      devices=2,
      workers=workers,
      codec=codec,
      exchange=self.exchange,
      part_bytes=part_bytes,
      batch=2 * workers,
      on_kernels=True,
      **options,
    )
    copies = self.training.replicas
    names = replicas.variable_names(self.training.plan, copies[0])
    count = len(copies[0].shared)
    self.run = types.SimpleNamespace(
      replicas=copies,
      names=names,
      method_states=names[len(names) - count :],
      float_steps=updates.float_steps(
        [bucket.method for bucket in self.training.codec.buckets]
      ),
      layout=checkpoints.Layout(
        *('small', 5, 'momentum', 2, workers, [0], 100),
        may_change={'num_workers': workers},
      ),
      store=stored_states.Store(
        self.training.states,
        self.exchange,
        names[: len(copies[0].trainable)],
      ),
    )
    self.train_dir = str(folder)

  def save(self, step):
    """Writes a checkpoint; returns its path."""
    store = self.run.store
    writer = checkpoints.Writer(
      self.train_dir,
      self.run.layout,
      self.run.replicas,
      self.run.names,
      {stored_states.FOLDER: store.variables},
    )
    with store.hold(store.gather()):
      return writer.save(step)

  def begin(self):
    """Goes on from the checkpoint; returns what was said after its path."""
    said = []
    restored = resume.continue_run(self.train_dir, self.run, said.append)
    numbers = coordination.broadcast_start(
      self.exchange, self.run.replicas, (restored.step, 9)
    )
    assert numbers == (restored.step, 9)
    self.run.store.scatter(restored.states)
    return said[1:]

  def states(self):
    """What is remembered, name to bits."""
    gathered = self.run.store.gather()
    return {name: v.view(np.uint32) for name, v in gathered.items()}

  def fill(self, bits):
    """Gives every state of workers other bits."""
    some = self.training.states
    lists = [v for of_device in some.workers for v in of_device.values()]
    for number, variable in enumerate(sum(lists, [])):
      size = variable.shape.num_elements()
      variable.assign(bits(number, size).reshape(variable.shape))


def assert_same(received, expected):
  assert received.keys() == expected.keys()
  for name, value in expected.items():
    np.testing.assert_array_equal(received[name], value, name)


@pytest.mark.parametrize(
  ('codec', 'options'),
  [
    # It has states of workers and one that they share.
    (KINDS[1], {'part_bytes': 0}),
    *(pytest.param(k, {}, marks=pytest.mark.slow) for k in KINDS[::2]),
    pytest.param(RANGES, {}, marks=pytest.mark.slow),
    # Three steps are one and a half times all local steps.
    ('error_feedback+sign', LOCAL),
    *(pytest.param(text, {}, marks=pytest.mark.slow) for text in UPDATES),
  ],
)
@pytest.mark.gate_every(4)
def test_a_resumed_run_ends_with_the_same_bits(codec, options, tmp_path):
  opened = Opened(tmp_path, codec, **options)
  opened.training.run(3)
  opened.save(3)

  def end():
    opened.training.run(2, first=3)
    return [opened.training.values(i) for i in range(2)], opened.states()

  undisturbed, states = end()
  assert states
  assert all(np.any(value) for value in states.values())
  assert opened.begin() == []
  values, received = end()
  np.testing.assert_array_equal(values, undisturbed)
  assert_same(received, states)


@pytest.mark.parametrize('codec', [KINDS[0], RANGES])
def test_every_bit_is_restored_and_no_states_are_held_after_saving(
  codec, tmp_path, monkeypatch
):
  monkeypatch.setattr(stored_states, '_PIECE', 50)
  opened = Opened(tmp_path, codec)

  def odd(number, size):
    # Zeros of both signs, subnormal numbers, infinities, all kinds of NaN.
    bits = np.arange(size, dtype=np.uint32) + np.uint32(number)
    return (bits * np.uint32(2**32 // size)).view(np.float32)

  opened.fill(odd)
  expected = opened.states()
  opened.save(1)
  held = opened.run.store.variables.values()
  assert {v.numpy().size for v in held} == {0}
  again = Opened(tmp_path, codec)
  assert again.begin() == []
  assert_same(again.states(), expected)


@pytest.mark.parametrize(
  ('before', 'now'), [(0, PART_BYTES), (PART_BYTES, 0), (1, PART_BYTES)]
)
@pytest.mark.parametrize('codec', [KINDS[0], RANGES])
def test_the_part_size_may_change_between_runs(codec, before, now, tmp_path):
  opened = Opened(tmp_path, codec, before)
  opened.fill(lambda number, size: number + np.arange(size, dtype=np.float32))
  opened.save(1)
  again = Opened(tmp_path, codec, now)
  assert again.begin() == []
  assert_same(again.states(), opened.states())


@pytest.mark.parametrize(
  ('count', 'options'),
  [(2, {}), (6, {}), pytest.param(2, LOCAL, marks=pytest.mark.slow)],
)
def test_another_number_of_workers_gets_the_mean_residual(
  count, options, tmp_path
):
  opened = Opened(tmp_path, KINDS[0], **options)
  opened.fill(lambda number, size: number * np.ones(size, np.float32))
  opened.save(1)
  again = Opened(tmp_path, KINDS[0], workers=count, **options)
  (line,) = again.begin()
  assert 'num_workers was 4 before' in line
  before, now = opened.run.store.gather(), again.run.store.gather()
  for name, value in before.items():
    assert now[name].shape == (count, *value.shape[1:])
    for worker in now[name]:
      np.testing.assert_array_equal(worker, value.mean(axis=0))


@pytest.mark.parametrize(
  ('before', 'now', 'said'),
  [
    ('ternary', KINDS[0], 'lacks states of the run: residual/'),
    (KINDS[0], 'ternary', 'holds states that the run does not use: '),
    ('ternary', KINDS[1], 'lacks states of the run: residual/'),
    (KINDS[1], KINDS[0], 'does not use: .*powersgd_q'),
    ('error_feedback+ternary', KINDS[1], 'states of the run: .*powersgd_q'),
  ],
)
def test_states_of_another_method_are_dropped_and_logged(
  before, now, said, tmp_path
):
  opened = Opened(tmp_path, before)
  for replica in opened.training.replicas:
    for variable in replica.trainable:
      variable.assign(variable + 1.0)
  opened.save(1)
  again = Opened(tmp_path, now)
  fresh = again.states()
  lines = '\n'.join(again.begin())
  assert 'the run will not end with the same bits' in lines
  assert re.search(said, lines), lines
  same = len(opened.training.plan.trainable)
  for a, b in zip(
    again.run.replicas[0].trainable[:same],
    opened.run.replicas[0].trainable,
    strict=True,
  ):
    np.testing.assert_array_equal(a, b)
  if before == 'ternary':
    assert_same(again.states(), fresh)


def test_a_run_does_not_begin_one_bit_adam_after_its_warm_up(tmp_path):
  opened = Opened(tmp_path, 'identity')
  opened.save(20)
  again = Opened(tmp_path, 'one_bit_adam:warm_up=20+sign')
  before = again.training.values(0)
  with pytest.raises(
    errors.CheckpointError,
    match=r'/adam_.*, which the first 20 steps .* of step 20 .* to 40 for',
  ):
    again.begin()
  np.testing.assert_array_equal(again.training.values(0), before)
  later = Opened(tmp_path, 'one_bit_adam:warm_up=21+sign')
  assert 'lacks states of the run: ' in '\n'.join(later.begin())


@pytest.mark.parametrize(
  'count',
  [3, *(pytest.param(count, marks=pytest.mark.slow) for count in (2, 6))],
)
def test_residuals_of_ranges_are_split_again_over_other_workers(
  count, tmp_path
):
  opened = Opened(tmp_path, RANGES)
  plan = opened.training.plan
  before = opened.run.store.gather()
  names = [name for name in before if bidirectional.RESIDUAL in name]
  assert names
  for name in names:
    (size,) = (
      variable.shape.num_elements()
      for path, variable in zip(plan.names, plan.trainable, strict=False)
      if name.endswith(f'/{path}')
    )
    # The last range ends with zeros.
    values = np.arange(1, before[name].size + 1, dtype=np.float32)
    values = np.where(values > size, 0, values).astype(np.float32)
    before[name] = values.reshape(before[name].shape)
  opened.run.store.scatter(before)
  opened.save(2)
  again = Opened(tmp_path, RANGES, workers=count)
  again.begin()
  now = again.run.store.gather()
  for name in names:
    assert len(now[name]) == count
    whole = [np.trim_zeros(np.ravel(one[name]), 'b') for one in (before, now)]
    assert whole[0].size
    np.testing.assert_array_equal(*whole)


@pytest.mark.slow
def test_local_steps_start_from_a_run_without_them(tmp_path):
  opened = Opened(tmp_path, 'identity')
  opened.training.run(2)
  opened.save(2)
  again = Opened(tmp_path, 'identity', **LOCAL)
  (line,) = again.begin()
  assert 'lacks states of the run: local_parameters/' in line
  again.training.run(1, first=2, rate=1e-3)
  stored = again.run.store.gather()
  for name, variable in zip(
    again.training.plan.names,
    opened.training.replicas[0].trainable,
    strict=True,
  ):
    for own in stored[f'local_parameters/{name}']:
      # Two steps of AdamW.
      np.testing.assert_allclose(own, variable.numpy(), atol=2.1e-3)
      assert np.any(own != variable.numpy())


def test_a_weight_source_does_not_list_states(tmp_path):
  opened = Opened(tmp_path, KINDS[0])
  path = opened.save(1)
  assert checkpoints.newest(str(tmp_path)) == path
  source = sources.open_checkpoint(path, 'lenet')
  assert source.unexpected == []
  assert sorted(source.shapes) == sorted(opened.run.names)


def test_names_with_dots_and_slashes_have_valid_keys(tmp_path):
  variables = {'states': {'residual/a.b/kernel': tf.Variable(1.0)}}
  path = tf.train.Checkpoint(**variables).save(str(tmp_path / 'model'))
  key = stored_states._key('residual/a.b/kernel')
  assert tf.train.load_checkpoint(path).has_tensor(key)


@pytest.mark.parametrize('count', [1, 2])
def test_states_are_gathered_on_the_chief_and_scattered_back(
  count, monkeypatch
):
  monkeypatch.setattr(stored_states, '_PIECE', 50)
  shape = [3, count, 7, 11]
  values = np.random.default_rng(1).normal(size=shape).astype(np.float32)

  def of_one(group):
    variables = [tf.Variable(value) for value in values[group.rank]]
    gathered = stored_states._gather(group, variables)
    for variable in variables:
      variable.assign(tf.zeros_like(variable))
    stored_states._scatter(group, variables, None)
    assert not np.any(variables)
    stored_states._scatter(group, variables, gathered)
    return gathered, np.array(variables)

  chiefs, *others = threads.run(3, 50, of_one)
  np.testing.assert_array_equal(chiefs[0], values.reshape([3, -1]))
  assert [gathered for gathered, _ in others] == [None, None]
  for (_, received), expected in zip([chiefs, *others], values, strict=True):
    np.testing.assert_array_equal(received, expected)
