"""Asynchronous steps on this process: its devices are the servers."""

import numpy as np
import pytest
import tensorflow as tf

from terngrad.codec import policy
from terngrad.codec.methods import registry
from terngrad.codec.methods.wrappers import error_feedback
from terngrad.exchange import towers
from terngrad.parameter_server import async_servers
from terngrad.parameter_server import async_shares
from terngrad.parameter_server import async_step
from terngrad.reduce import bucketing
from terngrad.reduce import states
from terngrad.step import model_variables
from terngrad.step import optimizers
from terngrad.step import passes
from terngrad.step import replicas
from tests.step import small

RATE = 0.05


class Servers:
  """Servers and worker processes of two nodes each."""

  def __init__(
    self,
    codec,
    build=small.dense_net,
    nodes_each=2,
    *,
    num_servers=1,
    processes=2,
    aggregate=1,
    optimizer=None,
    decoupled=False,
  ):
    servers = [f'/CPU:{i}' for i in range(num_servers)]
    with async_shares.balance(servers):
      model = build()
    plan = model_variables.variables_of(model)
    optimizer = optimizer or optimizers.parse('gd', 0.0)
    self.copies = replicas.create(plan, optimizer, ['/CPU:0'] * (1 + processes))
    specs = [
      policy.VariableSpec(name, tuple(variable.shape))
      for name, variable in zip(plan.names, plan.trainable, strict=False)
    ]
    self.codec = bucketing.gradient_codec(
      specs, [registry.method(codec)] * len(specs)
    )
    self.shape = [nodes_each, 4]
    self.node_pass = passes.ModelPass(model, plan, decoupled=decoupled)
    self.servers = async_servers.AsyncServers(
      self.node_pass, self.codec, self.copies[0], optimizer, aggregate
    )
    where = towers.Towers(('/CPU:0',), nodes_each)
    self.states = [
      states.make_worker_variables(
        states.declarations(self.codec), '/CPU:0', nodes_each
      )
      for _ in range(processes)
    ]
    self.processes = [
      async_step.WorkerProcess(
        node_pass=self.node_pass,
        towers=where,
        replicas=[copy],
        states=[self.states[number]],
        feed=None,
        seed=async_step.seed_of(7, number),
        servers=self.servers,
      )
      for number, copy in enumerate(self.copies[1:])
    ]

  def push(self, number, batch, pulled=0):
    return self.processes[number].push(
      tf.constant(pulled, tf.int64),
      tf.constant(0, tf.int64),
      *small.batch_of(batch, self.shape),
    )

  def apply(self, number, step=0):
    """Lets a process's gradient complete an update, and the process pull."""
    self.processes[number].apply(
      tf.constant(step, tf.int64), tf.constant(RATE), tf.constant(0.5)
    )
    self.processes[number].pull()

  def gradient(self, batch, copy):
    """The mean over the nodes of what a replica's gradient is."""
    replica = self.copies[copy]
    parameters = [tf.convert_to_tensor(v) for v in replica.trainable]
    held = [tf.convert_to_tensor(v) for v in replica.statistics]
    found = [
      self.node_pass.gradients(
        parameters, held, images, labels, tf.zeros([2], tf.uint32)
      )[0]
      for images, labels in zip(*small.batch_of(batch, self.shape), strict=True)
    ]
    decay = self.node_pass.decay.gradients(parameters)
    means = [sum(g) / len(found) for g in zip(*found, strict=True)]
    return flat(
      [m if d is None else m + d for m, d in zip(means, decay, strict=True)]
    )

  def parameters(self, copy=0):
    return flat(self.copies[copy].trainable)

  def residuals(self, number):
    """A process's own, [nodes, elements] in the order of the parameters."""
    names = [
      states.Key(error_feedback.RESIDUAL, i)
      for i in range(len(self.copies[0].trainable))
    ]
    found = [self.states[number][name] for name in names]
    return np.stack([flat(of_node) for of_node in zip(*found, strict=True)])


def flat(values):
  return np.concatenate([np.ravel(value) for value in values])


@pytest.fixture(scope='module')
def floats():
  return Servers('identity')


@pytest.mark.usefixtures('eager_functions')
def test_a_late_gradient_is_computed_from_the_pulled_parameters(floats):
  before = floats.parameters()
  early = [floats.gradient(number, 1 + number) for number in range(2)]
  for number in range(2):
    floats.push(number, batch=number)
  floats.apply(0)
  np.testing.assert_allclose(
    floats.parameters(), before - RATE * early[0], atol=1e-6
  )
  floats.apply(1, step=1)
  np.testing.assert_allclose(
    floats.parameters(), before - RATE * (early[0] + early[1]), atol=1e-6
  )


def test_a_pull_changes_the_parameters_of_one_process_only(floats):
  for number in range(2):
    floats.processes[number].pull()
  before = floats.parameters()
  floats.push(0, batch=5)
  floats.apply(0)
  np.testing.assert_array_equal(floats.parameters(1), floats.parameters(0))
  np.testing.assert_array_equal(floats.parameters(2), before)
  floats.processes[1].pull()
  np.testing.assert_array_equal(floats.parameters(2), floats.parameters(0))


@pytest.mark.slow
def test_each_process_encodes_with_its_local_scaler():
  servers = Servers('ternary')
  before = servers.parameters()
  scalers = []
  for number in range(2):
    pushed = servers.push(number, batch=number)
    np.testing.assert_array_equal(pushed.shared, np.max(pushed.probes, axis=0))
    scalers.append(pushed.shared.numpy())
  assert (scalers[0] != scalers[1]).all()
  for number in range(2):
    servers.apply(number)
    after = servers.parameters()
    # Two nodes: sums of codes from -2 to 2, in halves of the process's scaler.
    first = servers.copies[0].trainable[0].shape.num_elements()
    halves = (before - after)[:first] / (RATE * scalers[number][0] / 2)
    np.testing.assert_allclose(halves, np.round(halves), atol=1e-3)
    assert set(np.round(halves)) == {-2, -1, 0, 1, 2}
    before = after


@pytest.mark.usefixtures('eager_functions')
@pytest.mark.parametrize('num_servers', [1, 2])
@pytest.mark.gate_every(2)
def test_residuals_hold_exactly_what_a_worker_did_not_send(num_servers):
  servers = Servers('error_feedback+topk:ratio=0.05', num_servers=num_servers)
  before = servers.parameters()
  np.testing.assert_array_equal(servers.residuals(0), 0)
  total = 0.0
  for step in range(3):
    total = total + servers.gradient(step, 1)
    servers.push(0, batch=step)
    servers.apply(0, step)
  residuals = servers.residuals(0)
  # Each node has examples of its own, and most elements are not sent.
  assert (residuals[0] != residuals[1]).any()
  assert (residuals != 0).mean() > 0.5
  np.testing.assert_allclose(
    before - servers.parameters(),
    RATE * (total - np.mean(residuals, axis=0)),
    atol=1e-6,
  )
  np.testing.assert_array_equal(servers.residuals(1), 0)
  servers.push(1, batch=7)
  servers.apply(1)
  assert (servers.residuals(1) != 0).any()
  np.testing.assert_array_equal(servers.residuals(0), residuals)


@pytest.mark.usefixtures('eager_functions')
@pytest.mark.parametrize('aggregate', [1, 2])
@pytest.mark.gate_every(2)
def test_a_gradient_that_is_not_used_takes_nothing_from_the_residual(aggregate):
  servers = Servers('error_feedback+topk:ratio=0.05', aggregate=aggregate)
  servers.push(0, batch=0)
  servers.push(1, batch=1)
  if aggregate > 1:
    servers.processes[0].accumulate()
  servers.apply(1)
  kept = [servers.residuals(number) for number in range(2)]
  assert kept[0].any() == (aggregate > 1)
  assert kept[1].any()
  # The loop drops the first of these, as it does late ones.
  for batch in (2, 3):
    servers.push(1, batch=batch)
    np.testing.assert_array_equal(servers.residuals(1), kept[1])
  gradient = servers.gradient(3, 2)
  before = servers.parameters()
  if aggregate > 1:
    servers.push(0, batch=0)
    servers.processes[0].accumulate()
    servers.apply(1)
    return
  servers.apply(1)
  sent = (before - servers.parameters()) / RATE
  left = np.mean(servers.residuals(1), axis=0)
  np.testing.assert_allclose(
    sent + left, gradient + np.mean(kept[1], axis=0), atol=1e-5
  )


@pytest.mark.statistical
def test_the_applied_gradient_is_unbiased():
  servers = Servers('ternary:clip_factor=0')
  before = servers.parameters()
  expected = servers.gradient(3, 1)
  total, count = 0.0, 100
  for pulled in range(count):
    scaler = servers.push(0, batch=3, pulled=pulled).shared.numpy()
    servers.apply(0)
    total = total + (before - servers.parameters()) / RATE
    _restore(servers, before)
  error = total / count - expected
  # Of a code's mean: at most scaler / 2 a draw, two nodes, six deviations.
  limit = 6 * scaler.max() / 2 / np.sqrt(2 * count)
  assert np.abs(error).max() < limit
  # Draws of elements are independent, so their sum shows a smaller factor.
  assert abs(error @ expected) < limit * np.linalg.norm(expected)


def _restore(servers, values):
  for copy in servers.copies:
    offset = 0
    for variable in copy.trainable:
      size = variable.shape.num_elements()
      part = values[offset : offset + size]
      variable.assign(np.reshape(part, variable.shape))
      offset += size


def test_processes_have_different_seeds():
  seeds = {async_step.seed_of(7, number) for number in range(100)}
  assert len(seeds) == 100
  assert max(seeds) < 2**63


@pytest.mark.slow
def test_moving_statistics_are_pushed_and_pulled():
  servers = Servers('ternary', build=small.conv_net)
  before = flat(servers.copies[0].statistics)
  servers.push(1, batch=2)
  np.testing.assert_array_equal(flat(servers.copies[0].statistics), before)
  servers.apply(1)
  after = flat(servers.copies[0].statistics)
  assert (after != before).any()
  np.testing.assert_array_equal(flat(servers.copies[2].statistics), after)
  np.testing.assert_array_equal(flat(servers.copies[1].statistics), before)


@pytest.mark.usefixtures('eager_functions')
@pytest.mark.parametrize('num_servers', [1, 2])
@pytest.mark.gate_every(2)
def test_the_first_gradients_of_a_step_are_averaged(num_servers):
  servers = Servers(
    'identity', num_servers=num_servers, processes=3, aggregate=2
  )
  for step, (first, last) in enumerate([(0, 2), (2, 1)]):
    before = servers.parameters()
    early = []
    for number in (first, last):
      early.append(servers.gradient(10 * step + number, 1 + number))
      servers.push(number, batch=10 * step + number)
    servers.processes[first].accumulate()
    np.testing.assert_array_equal(servers.parameters(), before)
    servers.apply(last, step)
    servers.processes[first].pull()
    # Nothing is left of the step before.
    np.testing.assert_allclose(
      servers.parameters(), before - RATE * sum(early) / 2, atol=1e-6
    )


@pytest.mark.slow
def test_moving_statistics_of_a_step_are_averaged_too():
  servers = Servers('ternary', build=small.conv_net, aggregate=2)
  alone = Servers('ternary', build=small.conv_net)
  separate = []
  for number in range(2):
    servers.push(number, batch=number)
    alone.push(number, batch=number)
    alone.apply(number)
    separate.append(flat(alone.copies[0].statistics))
  servers.processes[0].accumulate()
  servers.apply(1)
  np.testing.assert_allclose(
    flat(servers.copies[0].statistics), sum(separate) / 2, rtol=1e-6
  )


@pytest.mark.slow
def test_each_server_applies_its_share_of_a_code():
  servers = Servers('ternary', num_servers=2)
  devices = [v.device for v in servers.copies[0].trainable]
  assert len(set(devices)) == 2
  assert [v.device for v in servers.copies[0].averages] == devices
  scalers = servers.push(0, batch=1).shared.numpy()
  before = [v.numpy() for v in servers.copies[0].trainable]
  servers.apply(0)
  after = servers.copies[0].trainable
  for old, new, scaler in zip(before, after, scalers, strict=True):
    # Two nodes: sums of codes from -2 to 2, in halves of the scaler.
    halves = (old - new.numpy()) / (RATE * scaler / 2)
    np.testing.assert_allclose(halves, np.round(halves), atol=1e-3)
    assert 1 <= np.abs(np.round(halves)).max() <= 2


def test_no_two_servers_variables_draw_the_same_bits():
  buckets = Servers('ternary', num_servers=2).servers.codec.buckets
  assert len(buckets) == 2
  assert len({bucket.stream for bucket in buckets}) == 2


MOMENTUM = optimizers.parse('momentum', 0.9)


@pytest.mark.parametrize(
  ('build', 'clip_norm'),
  [
    (small.dense_net, 0.01),
    pytest.param(small.conv_net, 0.0, marks=pytest.mark.slow),
  ],
)
@pytest.mark.slow
def test_two_servers_equal_one_server(build, clip_norm):
  one, two = (
    Servers(
      'identity',
      build=build,
      num_servers=num_servers,
      optimizer=MOMENTUM.with_clip_norm(clip_norm),
      decoupled=True,
    )
    for num_servers in (1, 2)
  )
  for servers in (one, two):
    for step in range(2):
      servers.push(0, batch=step)
      servers.apply(0, step)
  np.testing.assert_allclose(
    flat(two.copies[0].variables()), flat(one.copies[0].variables()), atol=1e-6
  )
