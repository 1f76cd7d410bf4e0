"""The gradients of the virtual nodes of one device.

The nodes of a device share its replica and run one after the other in a
`tf.while_loop` with `parallel_iterations=1`: a node's activations are freed
before the next node's begin, and the graph is the same for 1 node and for 64.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.codec.stages import random_bits
from terngrad.reduce import gradients as gradients_lib
from terngrad.step import passes


class DeviceRound(NamedTuple):
  """What the nodes of one device computed for a part, one entry a node.

  Attributes:
    carried: for each bucket a TensorArray of what a node carries: the one thing
      that a further node costs. For one node a list of `Single`,
      for each bucket one a tensor.
    probes: float32 [nodes, probes], see `GradientCodec.begin`.
    scores: float32 [nodes, `passes.NUM_SCORES`], means over a node's examples,
      the loss first.
    statistics: list of float32 [nodes, ...].
  """

  carried: list
  probes: tf.Tensor
  scores: tf.Tensor
  statistics: list


class Functions(NamedTuple):
  """A worker's side of a part, compiled where that is of use.

  Attributes:
    codec: `reduce.gradients.GradientCodec` of the part.
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
  """Compiles a worker's side of a `reduce.gradients.GradientCodec`.

  Args:
    node_pass: `passes.Pass`.
    codec: of a part of the model.
    num_workers: N.
    indices: those of the part's variables, see `reduce.parts.Part`; None
      for the whole model.

  Returns:
    `Functions`.
  """
  compiled = functools.partial(tf.function, jit_compile=True)
  # Some hundred operations on a few numbers: compiled, they cost nothing.
  keys = codec.keys if codec.compiled else compiled(codec.keys)
  side = _Side(codec, num_workers, keys)

  def made(function, *known, compiles=codec.compiled):
    function = functools.partial(function, side, *known)
    return compiled(function) if compiles else function

  # Plain floats are sent as they are, and compiled code would copy them.
  sends_compiled = codec.compiled and not codec.lossless
  return Functions(
    codec=codec,
    num_workers=num_workers,
    begin=functools.partial(
      _begin, indices, made(_begin_with_decay, node_pass.decay)
    ),
    carry=functools.partial(_carry, codec, made(_requantize)),
    send=[
      made(_send, number, compiles=sends_compiled)
      for number in range(codec.num_rounds)
    ],
    finish=made(_finish),
    decode=made(_decode),
  )


class _Side(NamedTuple):
  """What the functions of a worker's side share.

  Attributes:
    codec: see `Functions`.
    num_workers: N.
    keys: takes (seed, step, worker), see `GradientCodec.keys`.
  """

  codec: object
  num_workers: int
  keys: Callable

  def turn(self, seed, step, worker=None, **probes):
    """The `gradients.Turn` of a worker, or without its number of all."""
    keys = None if worker is None else self.keys(seed, step, worker)
    return gradients_lib.Turn(
      seed, step, self.num_workers, worker, keys, **probes
    )


def _begin(indices, begin_with_decay, results, parameters, states, *numbers):
  # What a part has no use for it must not wait for.
  own = (only(indices, values) for values in (results, parameters))
  return begin_with_decay(*own, states, *numbers)


def _begin_with_decay(side, decay, results, parameters, states, *numbers):
  results = [
    g if d is None else g + d
    for g, d in zip(results, decay(parameters), strict=True)
    if g is not None
  ]
  seed, step, worker = numbers
  # No method draws before the probe, so that there are no keys.
  turn = gradients_lib.Turn(seed, step, side.num_workers, worker)
  return side.codec.begin(results, states, turn)


def _carry(codec, requantize, carried, own, *numbers_and_stacked):
  *numbers, stacked = numbers_and_stacked
  # Not in the compiled part: XLA's concatenation is five times slower.
  if codec.compiled or stacked:
    carried = [
      values if bucket.method.carries else [methods.flat(values)]
      for bucket, values in zip(codec.buckets, carried, strict=True)
    ]
  if any(bucket.method.carries for bucket in codec.buckets):
    carried = requantize(carried, own, *numbers)
  return carried


def _requantize(side, carried, own, *numbers):
  return side.codec.carry(carried, side.turn(*numbers, own=own))


def _send(side, number, carried, states, received, own, shared, *numbers):
  turn = side.turn(*numbers, own=own, shared=shared)
  return side.codec.send(number, carried, states, received, turn)


def _finish(side, carried, states, means, own, shared, *numbers):
  turn = side.turn(*numbers, own=own, shared=shared)
  return side.codec.finish(carried, states, means, turn)


def _decode(side, received, states, shared, *numbers):
  turn = side.turn(*numbers, shared=shared)
  return side.codec.decode(received, states, turn)


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
      results, scores, moments = where.gradients(
        node_pass, worker, parameters, held, *batch.of(worker), key, *scale
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
      return [*carried, *probes, scores, *moments]

    sizes = [size for part in parts for size in part.codec.carried_sizes()]
    shapes = [
      *([part.codec.num_probes] for part in parts),
      [passes.NUM_SCORES],
      *(s.shape for s in statistics),
    ]
    specs = [
      *((dtype, [size]) for dtype, size in sizes),
      *((tf.float32, shape) for shape in shapes),
    ]
    arrays = map_nodes(replica.device, workers, specs, body)
    rest = [array.stack() for array in arrays[len(sizes) :]]
    probes, (scores, *moments) = rest[: len(parts)], rest[len(parts) :]
    rounds, first = [], 0
    for part, probe in zip(parts, probes, strict=True):
      last = first + len(part.codec.buckets)
      rounds.append(DeviceRound(arrays[first:last], probe, scores, moments))
      first = last
    return rounds


class Device(NamedTuple):
  """A device of an exchange.

  Attributes:
    replica: `replicas.Replica`.
    workers: range of the workers that live there.
    states: list of `states.OfPart`, one a part of the model.
    memory: `states.OfNodes` of what the pass remembers, or ().
  """

  replica: object
  workers: range
  states: list
  memory: object = ()

  def node_of(self, worker):
    """A worker's number among those of the device."""
    return (worker - self.workers.start) // self.workers.step

  def gradients(self, node_pass, worker, *arguments):
    """What a worker's pass returns; what it remembers is read and kept."""
    if not self.memory:
      return node_pass.gradients(*arguments)
    node = self.node_of(worker)
    *found, memory = node_pass.gradients(
      *arguments, memory=self.memory.read(node)
    )
    self.memory.write(node, memory)
    return found


def map_nodes(device, workers, specs, body):
  """What `body` returns for the workers of a device, one after the other.

  Args:
    device: its name.
    workers: range, not empty.
    specs: for each tensor of a worker (dtype, shape; None for any).
    body: takes a worker's number, int32 [], returns a list of tensors.

  Returns:
    For each of `specs` a `tf.TensorArray`, or a `Single` of one worker's.
  """
  if len(workers) == 1:
    # Without the loop nothing has to be stacked, that is copied.
    with tf.device(device):
      return [Single(value) for value in body(tf.constant(workers.start))]
  # What is carried is read once more in each round.
  arrays = [
    tf.TensorArray(
      dtype, len(workers), clear_after_read=False, element_shape=shape
    )
    for dtype, shape in specs
  ]

  def iterate(node, arrays):
    with tf.device(device):
      values = body(workers.start + node * workers.step)
      return node + 1, [
        array.write(node, value)
        for array, value in zip(arrays, values, strict=True)
      ]

  _, arrays = tf.while_loop(
    lambda node, _: node < len(workers),
    iterate,
    (tf.constant(0), arrays),
    parallel_iterations=1,
  )
  return arrays


class Single(NamedTuple):
  """What stands for a TensorArray of one element."""

  value: tf.Tensor

  def read(self, index):
    """The element."""
    del index
    return self.value

  def stack(self):
    """The element with a leading axis; no copy."""
    return tf.expand_dims(self.value, 0)
