"""What a worker process does at its own pace, as traced functions.

`push`: gradients and codes on the process's devices; the codes, the scaler that
they were made with and the moving statistics end in the process's boxes, which
are variables of the servers. `hold` and `apply`: the servers decode the boxes,
and add to what they hold or update the parameters. `pull`: the process has the
parameters.
"""

import functools
import hashlib
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from terngrad.exchange import towers as towers_lib
from terngrad.reduce import gradients
from terngrad.reduce import nodes
from terngrad.reduce import parts as parts_lib
from terngrad.reduce import rounds
from terngrad.reduce import states
from terngrad.step import passes


class Pushed(NamedTuple):
  """What the chief hears of a push.

  Attributes:
    entropy: float32 [nodes of the process].
    accuracy: float32 [nodes of the process], see `step.StepResult`.
    probes: float32 [nodes, probes].
    shared: float32 [probes], the scalers of the payloads: the process's own.
    sent: int32 [nodes], see `step.StepResult`.
  """

  entropy: tf.Tensor
  accuracy: tf.Tensor
  probes: tf.Tensor
  shared: tf.Tensor
  sent: tf.Tensor


class Process(NamedTuple):
  """The functions of one worker process.

  Attributes:
    push: takes (pulled int64 [], updates before the last pull; own int64 [],
      batches that the process had before) and, for the chief, (images [nodes,
      b, ...], labels [nodes, b]); returns a `Pushed`.
    hold: takes nothing.
    apply: takes (step int64 [], learning_rate float32 [], averaging_decay
      float32 []).
    pull: takes nothing.
  """

  push: Callable
  hold: Callable
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


class GradientSource(NamedTuple):
  """Where the gradients of a process come from.

  Attributes:
    node_pass: `passes.Pass`.
    towers: `exchange.towers.Towers` of its nodes on its devices.
    replicas: list of `replicas.Replica`, one a device.
    states: for each device what `states.of_workers` made.
    feed: `server.Feed`, or None for the chief, whose batches are given.
    seed: integer, see `seed_of`.
  """

  node_pass: passes.Pass
  towers: towers_lib.Towers
  replicas: list
  states: list
  feed: object
  seed: int


def make_process(source, servers):
  """Builds the traced functions of a process.

  Args:
    source: `GradientSource`.
    servers: `async_servers.Servers`.

  Returns:
    A `Process`.
  """
  towers = source.towers
  (part,) = parts_lib.parts(servers.codec)
  made = _Made(
    source,
    servers,
    nodes.functions(source.node_pass, servers.codec, towers.num_workers),
    [
      nodes.Device(
        replica,
        towers.workers_of(index),
        [states.OfPart(part, source.states[index], replica)],
      )
      for index, replica in enumerate(source.replicas)
    ],
    servers.buffers(towers.num_workers),
  )
  return Process(
    *(
      tf.function(functools.partial(function, made))
      for function in (_push, _hold, _apply, _pull)
    )
  )


class _Made(NamedTuple):
  """What the functions of a process share.

  Attributes:
    source: `GradientSource`.
    servers: `async_servers.Servers`.
    functions: `nodes.Functions`.
    devices: list of `nodes.Device`, one a device.
    buffers: of the process, from `servers.buffers`.
  """

  source: GradientSource
  servers: object
  functions: nodes.Functions
  devices: list
  buffers: list


def _push(made, pulled, own, *given):
  source, servers = made.source, made.servers
  feed, first_device = source.feed, source.towers.devices[0]
  seed_and_step = tf.constant(source.seed, tf.int64), pulled
  batch = towers_lib.Batch(*(feed.next() if feed else given), first=0)
  computed = []
  for where in made.devices:
    computed += nodes.run_parts(
      source.node_pass, [made.functions], where, batch, seed_and_step
    )
  with tf.device(first_device):
    shared = gradients.agree(tf.concat([r.probes for r in computed], axis=0))
  payloads = [
    rounds.Work(
      made.functions, where.states[0], r, where, shared, seed_and_step
    ).send(0, [])
    for r, where in zip(computed, made.devices, strict=True)
  ]
  with tf.device(first_device):
    together = towers_lib.in_order(payloads)
    sent = servers.codec.sent_words(together)
    means = [
      tf.reduce_mean(tf.concat(values, axis=0), axis=0)
      for values in zip(*(r.statistics for r in computed), strict=True)
    ]
    servers.put(made.buffers, together, shared, means)
  scores = towers_lib.in_order([r.scores for r in computed])
  if feed:
    feed.report(own, [r.scores[:, 0] for r in computed])
  return Pushed(
    entropy=scores[:, 0],
    accuracy=scores[:, 1],
    probes=towers_lib.in_order([r.probes for r in computed]),
    shared=shared,
    sent=sent,
  )


def _hold(made):
  made.servers.hold(made.buffers)


def _apply(made, *numbers):
  made.servers.update(made.buffers, numbers)


def _pull(made):
  server = made.servers.replica
  values = []
  for variable in (*server.trainable, *server.statistics):
    with tf.device(variable.device):
      values.append(tf.convert_to_tensor(variable))
  for replica in made.source.replicas:
    with tf.device(replica.device):
      targets = (*replica.trainable, *replica.statistics)
      for target, value in zip(targets, values, strict=True):
        target.assign(value)
      # Other devices of the process have it from the first.
      values = [tf.convert_to_tensor(target) for target in targets]
