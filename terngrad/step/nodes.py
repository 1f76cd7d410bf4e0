"""The gradients of the virtual nodes of one device.

The nodes of a device share its replica and run one after the other in a
`tf.while_loop` with `parallel_iterations=1`: a node's activations are freed
before the next node's begin, and the graph is the same for 1 node and for 64.
"""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from terngrad.codec import gradients as gradients_lib
from terngrad.codec import method as methods
from terngrad.codec.stages import random_bits
from terngrad.step import one_by_one


class DeviceRound(NamedTuple):
  """What the nodes of one device computed for a part, one entry a node.

  Attributes:
    carried: for each bucket a TensorArray of what a node carries: the one thing
      that a further node costs. For one node a list of `one_by_one.Single`,
      for each bucket one a tensor.
    probes: float32 [nodes, probes], see `GradientCodec.begin`.
    entropy: float32 [nodes], mean over a node's examples.
    statistics: list of float32 [nodes, ...].
  """

  carried: list
  probes: tf.Tensor
  entropy: tf.Tensor
  statistics: list


class Functions(NamedTuple):
  """A worker's side of a part, compiled where that is of use.

  Attributes:
    codec: `codec.gradients.GradientCodec` of the part.
    num_workers: N.
    begin: takes (gradients and parameters of the whole model, states, seed,
      step, worker), returns (gradients that are coded, with those of the L2
      terms; their probe float32 [probes]).
    carry: takes (coded gradients, own probe, seed, step, worker, stacked),
      returns what waits until the shared probe is known. Stacked: for each
      bucket one tensor.
    send: for each round a function of (what was carried, states, received, own,
      shared, seed, step, worker), which returns (int32 [words], states).
    finish: takes (what was carried, states, means, own, shared, seed, step,
      worker), returns states.
    decode: takes (received, states, shared, seed, step), returns (means,
      states).
  """

  codec: object
  num_workers: int
  begin: Callable
  carry: Callable
  send: list
  finish: Callable
  decode: Callable


def functions(node_pass, codec, num_workers, indices=None):
  """Compiles a worker's side of a `codec.gradients.GradientCodec`.

  Args:
    node_pass: `passes.Pass`.
    codec: of a part of the model.
    num_workers: N.
    indices: the places of the part's variables, see `codec.parts.Part`; None
      for the whole model.

  Returns:
    `Functions`.
  """

  def compiled(function):
    return tf.function(function, jit_compile=True)

  def turn(seed, step, worker=None, **more):
    keys = None if worker is None else derive(seed, step, worker)
    return gradients_lib.Turn(seed, step, num_workers, worker, keys, **more)

  def derive(seed, step, worker):
    return codec.keys(seed, step, worker)

  if not codec.compiled:
    # Some hundred operations on a few numbers: compiled, they cost nothing.
    derive = compiled(derive)

  def add_decay(results, parameters, states, seed, step, worker):
    results = [
      g if d is None else g + d
      for g, d in zip(results, node_pass.decay(parameters), strict=True)
      if g is not None
    ]
    # No method draws before the probe, so that there are no keys.
    begins = gradients_lib.Turn(seed, step, num_workers, worker)
    return codec.begin(results, states, begins)

  def begin(results, parameters, states, *numbers):
    # What a part has no use for it must not wait for.
    own = (only(indices, values) for values in (results, parameters))
    return add_decay(*own, states, *numbers)

  def requantized(carried, own, *numbers):
    return codec.carry(carried, turn(*numbers, own=own))

  def carry(carried, own, *numbers_and_stacked):
    *numbers, stacked = numbers_and_stacked
    # Not in the compiled part: XLA's concatenation is five times slower.
    if codec.compiled or stacked:
      carried = [
        values if bucket.method.carry else [methods.flat(values)]
        for bucket, values in zip(codec.buckets, carried, strict=True)
      ]
    if any(bucket.method.carry for bucket in codec.buckets):
      carried = requantized(carried, own, *numbers)
    return carried

  def make_send(number):
    def send(carried, states, received, own, shared, *numbers):
      told = turn(*numbers, own=own, shared=shared)
      return codec.send(number, carried, states, received, told)

    # Plain floats are sent as they are, and compiled code would copy them.
    if codec.compiled and not codec.lossless:
      return compiled(send)
    return send

  def finish(carried, states, means, own, shared, *numbers):
    told = turn(*numbers, own=own, shared=shared)
    return codec.finish(carried, states, means, told)

  def decode(received, states, shared, *numbers):
    return codec.decode(received, states, turn(*numbers, shared=shared))

  if codec.compiled:
    add_decay, requantized = compiled(add_decay), compiled(requantized)
    finish, decode = compiled(finish), compiled(decode)
  return Functions(
    codec=codec,
    num_workers=num_workers,
    begin=begin,
    carry=carry,
    send=[make_send(number) for number in range(codec.num_rounds)],
    finish=finish,
    decode=decode,
  )


def only(indices, values):
  """A list with None in place of what is not of a part; see `functions`."""
  if indices is None:
    return list(values)
  return [v if i in indices else None for i, v in enumerate(values)]


def run_parts(node_pass, parts, where, batch, seed_and_step):
  """Runs the forward and backward passes of the nodes of one device.

  Args:
    node_pass: `passes.Pass`.
    parts: list of `Functions`, one a part of the model.
    where: `Device`.
    batch: `exchange.towers.Batch`.
    seed_and_step: pair of int64 [].

  Returns:
    List of `DeviceRound`, one a part.
  """
  replica, workers = where.replica, where.workers
  stacked = len(workers) > 1
  with tf.device(replica.device):
    parameters = [tf.convert_to_tensor(v) for v in replica.trainable]
    statistics = [tf.convert_to_tensor(v) for v in replica.statistics]
    held = [*statistics, *(tf.convert_to_tensor(v) for v in replica.frozen)]
    scale = [tf.convert_to_tensor(v) for v in replica.scaling[:1]]

    def body(worker):
      key = random_bits.worker_key(*seed_and_step, worker)
      results, entropy, moments = node_pass.gradients(
        parameters, held, *batch.of(worker), key, *scale
      )
      carried, probes = [], []
      for part, states in zip(parts, where.states, strict=True):
        own = states.read(where.node_of(worker))
        numbers = *seed_and_step, worker
        values, probe = part.begin(results, parameters, own, *numbers)
        carried += part.carry(values, probe, *numbers, stacked)
        probes.append(probe)
      if stacked:
        carried = [value for (value,) in carried]
      return [*carried, *probes, entropy, *moments]

    sizes = [size for part in parts for size in part.codec.carried_sizes()]
    shapes = [
      *([part.codec.num_probes] for part in parts),
      [],
      *(s.shape for s in statistics),
    ]
    specs = [
      *((dtype, [size]) for dtype, size in sizes),
      *((tf.float32, shape) for shape in shapes),
    ]
    arrays = one_by_one.for_each(replica.device, workers, specs, body)
    rest = [array.stack() for array in arrays[len(sizes) :]]
    probes, (entropy, *moments) = rest[: len(parts)], rest[len(parts) :]
    rounds, first = [], 0
    for part, probe in zip(parts, probes, strict=True):
      last = first + len(part.codec.buckets)
      rounds.append(DeviceRound(arrays[first:last], probe, entropy, moments))
      first = last
    return rounds


class Device(NamedTuple):
  """A device of an exchange.

  Attributes:
    replica: `replicas.Replica`.
    workers: range of the workers that live there.
    states: list of `states.OfPart`, one a part of the model.
  """

  replica: object
  workers: range
  states: list

  def node_of(self, worker):
    """A worker's number among those of the device."""
    return (worker - self.workers.start) // self.workers.step


class Work(NamedTuple):
  """What the nodes of one device do for a part after their passes.

  Attributes:
    part: `Functions`.
    states: `states.OfPart`, which change.
    computed: `DeviceRound`.
    where: `Device`.
    shared: float32 [probes], the agreed probe.
    seed_and_step: pair of int64 [].
    counts: bool [], whether the step does; None where every step does. One that
      does not leaves the states as they are.
  """

  part: Functions
  states: object
  computed: DeviceRound
  where: Device
  shared: tf.Tensor
  seed_and_step: tuple
  counts: tf.Tensor | None = None

  def send(self, number, received):
    """The messages of a round, int32 [nodes, words].

    Args:
      number: of the round.
      received: see `GradientCodec.send`.
    """

    def body(carried, states, told):
      return self.part.send[number](carried, states, received, *told)

    (payloads,) = self._for_each([(tf.int32, None)], body)
    with tf.device(self.where.replica.device):
      return payloads.stack()

  def finish(self, means):
    """Lets nodes remember what depends on the mean gradients of the part."""

    def body(carried, states, told):
      return None, self.part.finish(carried, states, means, *told)

    self._for_each([], body)

  def _for_each(self, specs, body):
    device = self.where.replica.device

    def of_worker(worker):
      node = self.where.node_of(worker)
      carried = [_listed(array.read(node)) for array in self.computed.carried]
      own = self.computed.probes[node]
      told = own, self.shared, *self.seed_and_step, worker
      before = self.states.read(node)
      result, after = body(carried, before, told)
      self.states.write(node, before, after, self.counts)
      return [] if result is None else [result]

    with tf.device(device):
      return one_by_one.for_each(device, self.where.workers, specs, of_worker)


def _listed(value):
  return value if isinstance(value, list) else [value]
