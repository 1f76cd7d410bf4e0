"""An asynchronous step as two traced functions for each worker process.

`push`: gradients and codes on the process's devices; the codes, the scaler that
they were made with and the moving statistics end in the process's inbox, which
are variables of the ps. `apply`: the ps decodes the inbox and updates the
parameters, and the process pulls them.
"""

import hashlib
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from terngrad.codec import gradients
from terngrad.exchange import towers as towers_lib
from terngrad.training import nodes
from terngrad.training import step as steps


class Parts(NamedTuple):
  """What all processes have in common.

  Attributes:
    node_pass: `nodes.Pass`.
    codec: `codec.gradients.GradientCodec`.
    server: `replicas.Replica` on the ps.
    optimizer: `optimizers.Optimizer`.
    seed: integer, of the run.
  """

  node_pass: nodes.Pass
  codec: gradients.GradientCodec
  server: object
  optimizer: object
  seed: int


class Pushed(NamedTuple):
  """What the chief hears of a push.

  Attributes:
    entropy: float32 [nodes of the process].
    probes: float32 [nodes, probes].
    shared: float32 [probes], the scalers of the payloads: the process's own.
    sent: int32 [nodes], see `step.StepResult`.
  """

  entropy: tf.Tensor
  probes: tf.Tensor
  shared: tf.Tensor
  sent: tf.Tensor


class Process(NamedTuple):
  """The functions of one worker process.

  Attributes:
    push: takes (pulled int64 [], updates before the last pull; own int64 [],
      batches that the process had before) and, for the chief, (images [nodes,
      b, ...], labels [nodes, b]); returns a `Pushed`.
    apply: takes (step int64 [], learning_rate float32 [], averaging_decay
      float32 []).
    pull: takes nothing.
  """

  push: Callable
  apply: Callable
  pull: Callable


def seed_of(seed, number):
  """A process's own seed, so that no two processes draw the same bits.

  Args:
    seed: integer, of the run.
    number: of the process.

  Returns:
    An integer of 63 bits.
  """
  digest = hashlib.blake2b(f'{seed} {number}'.encode(), digest_size=8).digest()
  return int.from_bytes(digest, 'little') >> 1


def make_process(parts, number, towers, replicas, feed):
  """Builds the traced functions of a process.

  Args:
    parts: `Parts`.
    number: of the process.
    towers: `exchange.towers.Towers` of its nodes on its devices.
    replicas: list of `replicas.Replica`, one a device.
    feed: `server_step.Feed`, or None for the chief, whose batches are given.

  Returns:
    A `Process`.
  """
  server, codec = parts.server, parts.codec
  kernel = nodes.kernels(parts.node_pass, codec)
  update = steps.make_update(server, parts.optimizer, parts.node_pass.shrink)
  decode = tf.function(codec.decode_mean, jit_compile=codec.compiled)
  seed = seed_of(parts.seed, number)
  places = [
    (replica, towers.workers_of(place))
    for place, replica in enumerate(replicas)
  ]
  words, scalers, *moments = _inbox(codec, server, towers.num_workers)

  def push(pulled, own, *given):
    seed_and_step = tf.constant(seed, tf.int64), pulled
    batch = nodes.Batch(*(feed.next() if feed else given), first=0)
    rounds = [
      nodes.run(parts.node_pass, kernel, *where, batch, seed_and_step)
      for where in places
    ]
    with tf.device(towers.devices[0]):
      shared = gradients.agree(tf.concat([r.probes for r in rounds], axis=0))
    payloads = [
      nodes.encode(kernel, r, shared, *where, seed_and_step)
      for r, where in zip(rounds, places, strict=True)
    ]
    with tf.device(towers.devices[0]):
      together = towers_lib.in_order(payloads)
      sent = codec.sent_words(together)
      means = [
        tf.reduce_mean(tf.concat(values, axis=0), axis=0)
        for values in zip(*(r.statistics for r in rounds), strict=True)
      ]
    with tf.device(server.device):
      for variable, value in zip(
        (words, scalers, *moments), (together, shared, *means), strict=True
      ):
        variable.assign(value)
    if feed:
      feed.tell(own, [r.entropy for r in rounds])
    return Pushed(
      entropy=towers_lib.in_order([r.entropy for r in rounds]),
      probes=towers_lib.in_order([r.probes for r in rounds]),
      shared=shared,
      sent=sent,
    )

  def pull():
    sources = [*server.trainable, *server.statistics]
    with tf.device(server.device):
      values = [tf.convert_to_tensor(source) for source in sources]
    for replica in replicas:
      with tf.device(replica.device):
        targets = (*replica.trainable, *replica.statistics)
        for target, value in zip(targets, values, strict=True):
          target.assign(value)
        # Other devices of the process have it from the first.
        values = [tf.convert_to_tensor(target) for target in targets]

  def apply(*numbers):
    with tf.device(server.device):
      means = decode([tf.convert_to_tensor(words)], scalers.read_value())
      update(means, [m.read_value() for m in moments], numbers)
    pull()

  return Process(tf.function(push), tf.function(apply), tf.function(pull))


def _inbox(codec, server, num_nodes):
  """Variables on the ps for payloads, their scalers and moving statistics."""
  kinds = [
    (tf.int32, [num_nodes, codec.num_words]),
    (tf.float32, [codec.num_probes]),
    *((tf.float32, v.shape) for v in server.statistics),
  ]
  with tf.device(server.device):
    return [
      tf.Variable(tf.zeros(shape, dtype), trainable=False)
      for dtype, shape in kinds
    ]
