"""Parameter servers of asynchronous runs: decode, accumulate and update.

The servers decode each gradient when it arrives. They accumulate all gradients
of an update but the last in a float32 sum. With the last one they compute the
mean, update the parameters and reset the sum.
"""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from terngrad.codec import used_words
from terngrad.codec.stages import statistics
from terngrad.codec.stages import tracing
from terngrad.parameter_server import async_shares
from terngrad.reduce import gradients
from terngrad.reduce import metadata
from terngrad.reduce import weight_decay
from terngrad.step import clipping
from terngrad.step import optimizers
from terngrad.step import passes
from terngrad.step import replicas
from terngrad.step import updates


class GradientBuffer(NamedTuple):
  """Variables of a server that receive the pushes of one process.

  Attributes:
    words: float32 [nodes of the process, words of the share], the bits of int32
      words; see `stages.transport`.
    scalers: float32 [probes of the share], the probes that encoded the words.
    moments: float32, moving statistics of the share.
  """

  words: tf.Variable
  scalers: tf.Variable
  moments: list[tf.Variable]


class AsyncServers:
  """The parameter servers of a run."""

  def __init__(
    self,
    node_pass: passes.Pass,
    codec: gradients.GradientCodec,
    server: replicas.Replica,
    optimizer: optimizers.Optimizer,
    aggregate: int,
  ) -> None:
    """Creates the servers' sums and update functions.

    The variables of the replica `server` are distributed over the servers. An
    update uses `aggregate` gradients, >= 1, and applies the optimizer once.
    """
    self.replica = server
    self.codec, shares = async_shares.make_shares(codec, server)
    # With several servers none has the global norm; `update` clips instead.
    self._clip_norm = optimizer.clip_norm if len(shares) > 1 else 0.0
    rule = optimizer.with_clip_norm(0.0) if len(shares) > 1 else optimizer
    decay = node_pass.decoupled_decay
    self._servers = [
      _Server(share, rule, decay and decay.part(share.variables), aggregate)
      for share in shares
    ]

  def buffers(self, num_nodes: int) -> list[GradientBuffer]:
    """Creates one buffer per server, for a process of `num_nodes` nodes."""
    return [
      GradientBuffer(
        _zeros(share.replica, [num_nodes, share.codec.num_words]),
        _zeros(share.replica, [share.codec.num_probes]),
        [_zeros(share.replica, v.shape) for v in share.replica.statistics],
      )
      for share in (server.share for server in self._servers)
    ]

  def put(
    self,
    buffers: Sequence[GradientBuffer],
    payloads: tf.Tensor,
    scalers: tf.Tensor,
    moments: Sequence[tf.Tensor],
  ) -> None:
    """Sends a process's gradient and moving statistics to the servers.

    Args:
      buffers: the buffers of the process.
      payloads: float32 [nodes, words], payloads of `codec`.
      scalers: float32 [probes], the probes that encoded the payloads.
      moments: float32, moving statistics of the model.
    """
    for server, buffer in zip(self._servers, buffers, strict=True):
      share = server.share
      # Slices on the worker's device, so that a server receives only its share.
      messages = share.codec.messages(0)
      pushed = used_words.cut(messages, payloads[:, share.words])
      share_scalers = tf.gather(scalers, share.probes)
      with tf.device(share.replica.device):
        buffer.words.assign(used_words.join(messages, pushed))
        buffer.scalers.assign(share_scalers)
        for index, variable in enumerate(buffer.moments):
          variable.assign(moments[share.statistics[index]])

  def accumulate(self, buffers: Sequence[GradientBuffer]) -> None:
    """Adds the gradient in a process's buffers to the servers' sums."""
    for server, buffer in zip(self._servers, buffers, strict=True):
      server.accumulate(buffer)

  def update(
    self, buffers: Sequence[GradientBuffer], numbers: updates.Numbers
  ) -> None:
    """Updates the parameters by the mean of the gradients; resets the sums.

    Args:
      buffers: the buffers with the last gradient of the update.
      numbers: step, learning rate and averaging decay; see `updates.Numbers`.
    """
    values = [
      server.mean(buffer)
      for server, buffer in zip(self._servers, buffers, strict=True)
    ]
    factor = self._clip_factor(values)
    for server, server_values in zip(self._servers, values, strict=True):
      server.update(server_values, factor, numbers)

  def _clip_factor(
    self, values: Sequence[Sequence[tf.Tensor]]
  ) -> tf.Tensor | None:
    """Computes the factor of global-norm clipping.

    None without clipping, and with one server, where the optimizer clips.
    """
    if not self._clip_norm:
      return None
    norms = []
    for server, server_values in zip(self._servers, values, strict=True):
      with tf.device(server.share.replica.device):
        count = len(server.share.variables)
        norms += [statistics.norm(value) for value in server_values[:count]]
    with tf.device(self._servers[0].share.replica.device):
      return clipping.clip_factor(norms, self._clip_norm)


class _Server:
  """One server: its share of the parameters and its sum of gradients."""

  def __init__(
    self,
    share: async_shares.Share,
    optimizer: optimizers.Optimizer,
    decoupled_decay: weight_decay.WeightDecay | None,
    aggregate: int,
  ) -> None:
    self.share = share
    self._update = updates.Update(share.replica, optimizer, decoupled_decay)
    self._decode = tracing.function(
      share.codec.decode_words, jit_compile=share.codec.compiled
    )
    self._aggregate = aggregate
    variables = *share.replica.trainable, *share.replica.statistics
    # Sums of gradients and statistics; none if an update has one gradient.
    self._sums = [
      _zeros(share.replica, v.shape) for v in variables if aggregate > 1
    ]

  def accumulate(self, buffer: GradientBuffer) -> None:
    with tf.device(self.share.replica.device):
      for total, value in zip(self._sums, self._read(buffer), strict=True):
        total.assign_add(value)

  def mean(self, buffer: GradientBuffer) -> list[tf.Tensor]:
    """Computes the mean gradient and moving statistics; resets the sums."""
    with tf.device(self.share.replica.device):
      last = self._read(buffer)
      return self._mean(last) if self._sums else last

  def update(
    self,
    values: Sequence[tf.Tensor],
    factor: tf.Tensor | None,
    numbers: updates.Numbers,
  ) -> None:
    count = len(self.share.variables)
    with tf.device(self.share.replica.device):
      means, moments = values[:count], metadata.flat(values[count:])
      if factor is not None:
        means = [mean * factor for mean in means]
      self._update(means, moments, numbers)

  def _read(self, buffer: GradientBuffer) -> list[tf.Tensor]:
    """Decodes a buffer: the share's gradient, then its moving statistics."""
    words = [tf.convert_to_tensor(buffer.words)]
    gradient = (
      self._decode(words, buffer.scalers.read_value())
      if self.share.variables
      else []
    )
    return [*gradient, *(m.read_value() for m in buffer.moments)]

  @tracing.compiled
  def _mean(self, last: list[tf.Tensor]) -> list[tf.Tensor]:
    means = []
    for total, value in zip(self._sums, last, strict=True):
      means.append((total + value) * (1.0 / self._aggregate))
      total.assign(tf.zeros_like(total))
    return means


def _zeros(replica: replicas.Replica, shape: Sequence[int]) -> tf.Variable:
  with tf.device(replica.device):
    return tf.Variable(tf.zeros(shape), trainable=False)
