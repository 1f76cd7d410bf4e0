"""What a worker process does at its own pace, as traced functions.

`push`: gradients and codes on the process's devices; the codes, the scaler that
they were made with and the moving statistics end in the process's boxes, which
are variables of the servers. `hold` and `apply`: the servers decode the boxes,
and add to what they hold or update the parameters. `pull`: the process has the
parameters.
"""

import dataclasses
import hashlib
from collections.abc import Sequence

import tensorflow as tf

from terngrad.exchange import server
from terngrad.exchange import towers as towers_lib
from terngrad.parameter_server import async_servers
from terngrad.reduce import states as states_lib
from terngrad.step import device_passes
from terngrad.step import passes
from terngrad.step import replicas as replicas_lib
from terngrad.step import step as steps


def seed_of(seed: int, number: int) -> int:
  """A process's own seed, so that no two processes draw the same bits.

  Args:
    seed: of the run.
    number: of the process.

  Returns:
    63 bits.
  """
  digest = hashlib.blake2b(f'{seed} {number}'.encode(), digest_size=8).digest()
  return int.from_bytes(digest, 'little') >> 1


@dataclasses.dataclass(eq=False, kw_only=True)
class Process:
  """What one worker process does at its own pace; all is traced.

  Attributes:
    node_pass: of a node.
    towers: its nodes on its devices.
    replicas: one a device.
    states: for each device what `states.of_workers` made.
    feed: None for the chief, whose batches are given.
    seed: see `seed_of`.
    servers: where its gradients go.
  """

  node_pass: passes.Pass
  towers: towers_lib.Towers
  replicas: Sequence[replicas_lib.Replica]
  states: Sequence[dict[states_lib.Key, list[tf.Variable]]]
  feed: server.Feed | None
  seed: int
  servers: async_servers.Servers

  def __post_init__(self) -> None:
    """Traces nothing yet."""
    # The mean of its workers' gradients is never asked for.
    self._reducer = device_passes.reducer(
      self.servers.codec,
      self.towers,
      self.replicas,
      self.states,
      self.node_pass,
      self.seed,
    )
    self._passes = [
      device_passes.DevicePasses(one, self.towers.workers_of(index))
      for index, one in enumerate(self.replicas)
    ]
    self._buffers = self.servers.buffers(self.towers.num_workers)

  @tf.function
  def push(
    self, pulled: tf.Tensor, own: tf.Tensor, *given: tf.Tensor
  ) -> steps.StepResult:
    """Computes a gradient and sends its codes to the servers.

    Args:
      pulled: int64 [], updates before the last pull.
      own: int64 [], batches that the process had before.
      *given: for the chief images [nodes, b, ...] and labels [nodes, b].

    Returns:
      What a step of these nodes alone tells. The agreed probe is that of the
      process, and no words come back: codes stay on the servers.
    """
    feed, count = self.feed, len(self._passes)
    images, labels = feed.next() if feed else given
    batch = towers_lib.Batch(images, labels, first=0)
    seed = tf.constant(self.seed, tf.int64)
    begun = self._reducer.begin(
      [
        one.gradients_of(self.node_pass, batch, seed, pulled)
        for one in self._passes
      ],
      [pulled] * count,
    )
    (pending,) = self._reducer.exchange(begun, [None] * count)
    metadata = begun.metadata
    (shared, *_), (probes,) = metadata.shared[0], metadata.probes
    with tf.device(self.towers.devices[0]):
      words = towers_lib.in_order([one.words[0] for one in pending])
      sent = towers_lib.in_order([one.sent[0] for one in pending])
      self.servers.put(self._buffers, words, shared, metadata.statistics[0])
    if feed:
      feed.report(own, [local.scores[:, 0] for local in begun.local])
    return steps.StepResult(
      entropy=metadata.scores[:, 0],
      accuracy=metadata.scores[:, 1],
      probes=probes,
      shared=shared,
      # So there are no histograms of them.
      words=[[tf.zeros([1, 0], tf.int32)]],
      sent=sent,
      stop=metadata.stop,
    )

  @tf.function
  def hold(self) -> None:
    """Lets the servers add its gradient to what they hold."""
    self.servers.hold(self._buffers)

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
    self.servers.update(self._buffers, (step, learning_rate, averaging_decay))

  @tf.function
  def pull(self) -> None:
    """Fetches the parameters and the moving statistics."""
    server = self.servers.replica
    values = []
    for variable in (*server.trainable, *server.statistics):
      with tf.device(variable.device):
        values.append(tf.convert_to_tensor(variable))
    for replica in self.replicas:
      with tf.device(replica.device):
        targets = (*replica.trainable, *replica.statistics)
        for target, value in zip(targets, values, strict=True):
          target.assign(value)
        # Other devices of the process have it from the first.
        values = [tf.convert_to_tensor(target) for target in targets]
