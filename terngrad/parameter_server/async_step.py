"""Traced functions of a worker process in an asynchronous run.

`push` computes and encodes a gradient on the process's devices. It writes the
codes, their scalers and the moving statistics to the process's buffers, which
are variables of the servers. `accumulate` lets the servers decode the buffers
and add them to their sums; `apply` lets them update the parameters instead.
`pull` copies the parameters to the process.

The states of the workers, such as residuals, change with `accumulate` and
`apply`. So a dropped gradient, and one that a checkpoint comes before, changes
none: a residual keeps what a lost message would have taken from it.
"""

import dataclasses
import hashlib
from collections.abc import Sequence

import tensorflow as tf

from terngrad.codec.stages import tracing
from terngrad.exchange import server
from terngrad.exchange import towers as towers_lib
from terngrad.parameter_server import async_servers
from terngrad.reduce import metadata as metadata_lib
from terngrad.reduce import states as states_lib
from terngrad.step import device_passes
from terngrad.step import passes
from terngrad.step import replicas as replicas_lib
from terngrad.step import step as steps

# For each device the variables of its workers, by state.
_States = Sequence[dict[states_lib.Key, list[tf.Variable]]]


def seed_of(seed: int, number: int) -> int:
  """Derives a process's seed, in [0, 2**63), from the seed of the run.

  No two processes draw the same bits.
  """
  digest = hashlib.blake2b(f'{seed} {number}'.encode(), digest_size=8).digest()
  return int.from_bytes(digest, 'little') >> 1


@dataclasses.dataclass(eq=False, kw_only=True)
class WorkerProcess:
  """Traced functions of one worker process in an asynchronous run.

  Attributes:
    node_pass: pass of a node.
    towers: the process's devices and their nodes.
    replicas: one replica per device.
    states: for each device the states of its workers, from
      `states.make_worker_variables`, after the gradients that were used.
    feed: provides the batches; None for the chief, which passes them to `push`.
    seed: seed of the process, from `seed_of`.
    servers: the parameter servers.
  """

  node_pass: passes.Pass
  towers: towers_lib.Towers
  replicas: Sequence[replicas_lib.Replica]
  states: _States
  feed: server.Feed | None
  seed: int
  servers: async_servers.AsyncServers

  def __post_init__(self) -> None:
    """Builds the passes and the buffers; traces nothing."""
    # The states after the pushed gradient.
    self._pushed_states = [
      {key: [_like(one) for one in found] for key, found in device.items()}
      for device in self.states
    ]
    # Only encodes: the mean of this process's gradients is never computed.
    self._reducer = device_passes.reducer(
      self.servers.codec,
      self.towers._replace(keeps_words=True),
      self.replicas,
      self._pushed_states,
      self.node_pass,
      self.seed,
    )
    self._passes = [
      device_passes.DevicePasses(one, self.towers.workers_of(index))
      for index, one in enumerate(self.replicas)
    ]
    self._buffers = self.servers.buffers(self.towers.num_workers)

  @tracing.function
  def push(
    self, pulled: tf.Tensor, num_batches: tf.Tensor, *examples: tf.Tensor
  ) -> steps.StepResult:
    """Computes a gradient and sends its codes to the servers.

    Args:
      pulled: int64 [], updates in the parameters that were pulled last.
      num_batches: int64 [], batches that the process computed before.
      *examples: images [nodes, b, ...] and labels [nodes, b]; for the chief
        only.

    Returns:
      The result of a step of this process's nodes. `shared` is agreed within
      the process, and `words` is empty, because the codes stay on the servers.
    """
    _copy(self.states, self._pushed_states)
    feed, count = self.feed, len(self._passes)
    images, labels = feed.next() if feed else examples
    batch = towers_lib.Batch(images, labels, first=0)
    seed = tf.constant(self.seed, tf.int64)
    start = self._reducer.begin(
      [
        one.gradients_of(self.node_pass, batch, seed, pulled)
        for one in self._passes
      ],
      [pulled] * count,
    )
    (pending,) = self._reducer.exchange(start, [None] * count)
    metadata = start.metadata
    (shared, *_), (probes,) = metadata.shared[0], metadata.probes
    with tf.device(self.towers.devices[0]):
      words = towers_lib.order_by_worker([one.words[0] for one in pending])
      sent = towers_lib.order_by_worker([one.sent[0] for one in pending])
      shapes = [v.shape for v in self._passes[0].replica.statistics]
      moments = metadata_lib.split(metadata.statistics[0], shapes)
      self.servers.put(self._buffers, words, shared, moments)
    if feed:
      local = start.local.values()
      feed.report(num_batches, [one.scores[:, 0] for one in local])
    return steps.StepResult(
      entropy=metadata.scores[:, 0],
      accuracy=metadata.scores[:, 1],
      probes=probes,
      shared=shared,
      # Empty, so `run_writer` records no histograms of the codes.
      words=[[tf.zeros([1, 0])]],
      sent=sent,
      stop=metadata.stop,
    )

  @tracing.function
  def accumulate(self) -> None:
    """Lets the servers add the pushed gradient to their sums."""
    _copy(self._pushed_states, self.states)
    self.servers.accumulate(self._buffers)

  @tracing.function
  def apply(
    self, step: tf.Tensor, learning_rate: tf.Tensor, averaging_decay: tf.Tensor
  ) -> None:
    """Lets the servers update the parameters with the pushed gradient.

    Args:
      step: int64 [], completed updates.
      learning_rate: float32 [].
      averaging_decay: float32 [], decay of the parameters' moving averages.
    """
    _copy(self._pushed_states, self.states)
    self.servers.update(self._buffers, (step, learning_rate, averaging_decay))

  @tracing.function
  def pull(self) -> None:
    """Copies the parameters and moving statistics to the process's devices."""
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
        # The next device copies from this one instead of from the servers.
        values = [tf.convert_to_tensor(target) for target in targets]


def _like(variable: tf.Variable) -> tf.Variable:
  """Makes a variable of the same shape, dtype and device, with zeros."""
  with tf.device(variable.device):
    zeros = tf.zeros(variable.shape, variable.dtype)
    return tf.Variable(zeros, trainable=False)


def _copy(source: _States, target: _States) -> None:
  """Assigns states on each device to variables of the same device."""
  pairs = zip(tf.nest.flatten(source), tf.nest.flatten(target), strict=True)
  for here, there in pairs:
    with tf.device(there.device):
      there.assign(here)
