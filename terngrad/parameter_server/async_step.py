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

from terngrad.exchange import server
from terngrad.exchange import towers as towers_lib
from terngrad.parameter_server import async_servers
from terngrad.reduce import metadata as metadata_lib
from terngrad.reduce import reducer as reducers
from terngrad.reduce import states as states_lib
from terngrad.step import device_passes
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
  feed: server.Feed | None
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
  replica = source.replicas[0]
  states = zip(source.states, source.replicas, strict=True)
  made = _Made(
    source,
    servers,
    reducers.Reducer(
      servers.codec,
      towers,
      [states_lib.DeviceStates(own, one.shared) for own, one in states],
      source.seed,
      reducers.Options(
        metadata_lib.Row(
          passes.NUM_SCORES, tuple(tuple(v.shape) for v in replica.statistics)
        ),
        source.node_pass.decay,
      ),
    ),
    [
      device_passes.DevicePasses(one, towers.workers_of(index))
      for index, one in enumerate(source.replicas)
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
    source: where its gradients come from.
    servers: where they go.
    reducer: of its workers' gradients, whose mean is never asked for.
    passes: of each device.
    buffers: of the process, from `servers.buffers`.
  """

  source: GradientSource
  servers: async_servers.Servers
  reducer: reducers.Reducer
  passes: list[device_passes.DevicePasses]
  buffers: list


def _push(made, pulled, own, *given):
  source, servers = made.source, made.servers
  feed, first_device = source.feed, source.towers.devices[0]
  batch = towers_lib.Batch(*(feed.next() if feed else given), first=0)
  seed = tf.constant(source.seed, tf.int64)
  begun = made.reducer.begin(
    [
      one.gradients_of(source.node_pass, batch, seed, pulled)
      for one in made.passes
    ],
    [pulled] * len(made.passes),
  )
  (pending,) = made.reducer.exchange(begun, [None] * len(made.passes))
  metadata = begun.metadata
  (shared, *_), (probes,) = metadata.shared[0], metadata.probes
  with tf.device(first_device):
    words = towers_lib.in_order([one.words[0] for one in pending])
    sent = towers_lib.in_order([one.sent[0] for one in pending])
    servers.put(made.buffers, words, shared, metadata.statistics[0])
  if feed:
    feed.report(own, [local.scores[:, 0] for local in begun.local])
  return Pushed(
    entropy=metadata.scores[:, 0],
    accuracy=metadata.scores[:, 1],
    probes=probes,
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
