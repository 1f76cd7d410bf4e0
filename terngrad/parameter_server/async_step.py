"""What a worker process does at its own pace, as traced functions.

`push`: gradients and codes on the process's devices; the codes, the scaler that
they were made with and the moving statistics end in the process's boxes, which
are variables of the servers. `hold` and `apply`: the servers decode the boxes,
and add to what they hold or update the parameters. `pull`: the process has the
parameters.
"""

import hashlib
from typing import NamedTuple

import tensorflow as tf

from terngrad.exchange import server
from terngrad.exchange import towers as towers_lib
from terngrad.parameter_server import async_servers
from terngrad.reduce import states as states_lib
from terngrad.step import device_passes
from terngrad.step import passes
from terngrad.step import replicas as replicas_lib


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


def seed_of(seed: int, number: int) -> int:
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
    node_pass: of a node.
    towers: its nodes on its devices.
    replicas: one a device.
    states: for each device what `states.of_workers` made.
    feed: `server.Feed`, or None for the chief, whose batches are given.
    seed: integer, see `seed_of`.
  """

  node_pass: passes.Pass
  towers: towers_lib.Towers
  replicas: list[replicas_lib.Replica]
  states: list[dict[states_lib.Key, list[tf.Variable]]]
  feed: server.Feed | None
  seed: int


class Process:
  """What one worker process does at its own pace; all is traced."""

  def __init__(
    self, source: GradientSource, servers: async_servers.Servers
  ) -> None:
    """Traces nothing yet.

    Args:
      source: where its gradients come from.
      servers: where they go.
    """
    towers = source.towers
    self._source = source
    self._servers = servers
    # The mean of its workers' gradients is never asked for.
    self._reducer = device_passes.reducer(
      servers.codec,
      towers,
      source.replicas,
      source.states,
      source.node_pass,
      source.seed,
    )
    self._passes = [
      device_passes.DevicePasses(one, towers.workers_of(index))
      for index, one in enumerate(source.replicas)
    ]
    self._buffers = servers.buffers(towers.num_workers)

  @tf.function
  def push(
    self, pulled: tf.Tensor, own: tf.Tensor, *given: tf.Tensor
  ) -> Pushed:
    """Computes a gradient and sends its codes to the servers.

    Args:
      pulled: int64 [], updates before the last pull.
      own: int64 [], batches that the process had before.
      *given: for the chief images [nodes, b, ...] and labels [nodes, b].
    """
    source, count = self._source, len(self._passes)
    feed = source.feed
    batch = towers_lib.Batch(*(feed.next() if feed else given), first=0)
    seed = tf.constant(source.seed, tf.int64)
    begun = self._reducer.begin(
      [
        one.gradients_of(source.node_pass, batch, seed, pulled)
        for one in self._passes
      ],
      [pulled] * count,
    )
    (pending,) = self._reducer.exchange(begun, [None] * count)
    metadata = begun.metadata
    (shared, *_), (probes,) = metadata.shared[0], metadata.probes
    with tf.device(source.towers.devices[0]):
      words = towers_lib.in_order([one.words[0] for one in pending])
      sent = towers_lib.in_order([one.sent[0] for one in pending])
      self._servers.put(self._buffers, words, shared, metadata.statistics[0])
    if feed:
      feed.report(own, [local.scores[:, 0] for local in begun.local])
    return Pushed(
      entropy=metadata.scores[:, 0],
      accuracy=metadata.scores[:, 1],
      probes=probes,
      shared=shared,
      sent=sent,
    )

  @tf.function
  def hold(self) -> None:
    """Lets the servers add its gradient to what they hold."""
    self._servers.hold(self._buffers)

  @tf.function
  def apply(
    self, step: tf.Tensor, learning_rate: tf.Tensor, averaging_decay: tf.Tensor
  ) -> None:
    """Lets the servers update the parameters.

    Args:
      step: int64 [], updates before.
      learning_rate: float32 [].
      averaging_decay: float32 [].
    """
    self._servers.update(self._buffers, (step, learning_rate, averaging_decay))

  @tf.function
  def pull(self) -> None:
    """Fetches the parameters and the moving statistics."""
    server = self._servers.replica
    values = []
    for variable in (*server.trainable, *server.statistics):
      with tf.device(variable.device):
        values.append(tf.convert_to_tensor(variable))
    for replica in self._source.replicas:
      with tf.device(replica.device):
        targets = (*replica.trainable, *replica.statistics)
        for target, value in zip(targets, values, strict=True):
          target.assign(value)
        # Other devices of the process have it from the first.
        values = [tf.convert_to_tensor(target) for target in targets]
