"""What parameter servers do with gradients that come one by one.

The gradients of an update are decoded as they come. All but the last are held
as a float32 sum; with the last the servers average, update the parameters and
hold nothing again.
"""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from terngrad.codec import used_words
from terngrad.codec.stages import statistics
from terngrad.parameter_server import async_shares
from terngrad.reduce import gradients
from terngrad.reduce import programs
from terngrad.step import clipping
from terngrad.step import optimizers
from terngrad.step import passes
from terngrad.step import replicas
from terngrad.step import updates


class GradientBuffer(NamedTuple):
  """Where a server finds what a process pushed; variables of the server.

  Attributes:
    words: int32 [nodes of the process, words of the share].
    scalers: float32 [probes of the share], which the words were made with.
    moments: float32, the share's moving statistics.
  """

  words: tf.Variable
  scalers: tf.Variable
  moments: list[tf.Variable]


class Servers:
  """The servers of a run; they hold the parameters."""

  def __init__(
    self,
    node_pass: passes.Pass,
    codec: gradients.GradientCodec,
    server: replicas.Replica,
    optimizer: optimizers.Optimizer,
    aggregate: int,
  ) -> None:
    """Makes what they need besides the parameters.

    Args:
      node_pass: of the workers.
      codec: of the model.
      server: its variables are dealt to the servers.
      optimizer: applied once an update.
      aggregate: gradients of an update, >= 1.
    """
    self.replica = server
    self.codec, shares = async_shares.share(codec, server)
    # A norm over several servers is no matter of one of them.
    self._clip_norm = optimizer.clip_norm if len(shares) > 1 else 0.0
    own = optimizer.clipped(0.0) if len(shares) > 1 else optimizer
    decay = node_pass.decoupled_decay
    self._servers = [
      _Server(share, own, decay and decay.part(share.variables), aggregate)
      for share in shares
    ]

  def buffers(self, num_nodes: int) -> list[GradientBuffer]:
    """One on each server, for a process of so many nodes."""
    return [
      GradientBuffer(
        _zeros(share.replica, [num_nodes, share.codec.num_words], tf.int32),
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
    """Sends a process's gradient, and its moving statistics, to the servers.

    Args:
      buffers: from `buffers`.
      payloads: int32 [nodes, words], from `codec`.
      scalers: float32 [probes].
      moments: float32, of the model.
    """
    for server, buffer in zip(self._servers, buffers, strict=True):
      share = server.share
      # Cut where they are, so that a server is sent its own alone.
      messages = share.codec.messages(0)
      pushed = used_words.cut(messages, payloads[:, share.words])
      own = tf.gather(scalers, share.probes)
      with tf.device(share.replica.device):
        buffer.words.assign(used_words.joined(messages, pushed))
        buffer.scalers.assign(own)
        for index, variable in enumerate(buffer.moments):
          variable.assign(moments[share.statistics[index]])

  def hold(self, buffers: Sequence[GradientBuffer]) -> None:
    """Adds what lies in a process's boxes to what is held."""
    for server, buffer in zip(self._servers, buffers, strict=True):
      server.hold(buffer)

  def update(
    self, buffers: Sequence[GradientBuffer], numbers: updates.Numbers
  ) -> None:
    """Updates the parameters by the mean of what is held and of the boxes.

    Args:
      buffers: of the process whose gradient came last.
      numbers: see `updates.Numbers`.
    """
    values = [
      server.mean(buffer)
      for server, buffer in zip(self._servers, buffers, strict=True)
    ]
    factor = self._clip_factor(values)
    for server, own in zip(self._servers, values, strict=True):
      server.update(own, factor, numbers)

  def _clip_factor(
    self, values: Sequence[Sequence[tf.Tensor]]
  ) -> tf.Tensor | None:
    """What to multiply gradients with; None where an update clips, or none."""
    if not self._clip_norm:
      return None
    norms = []
    for server, some in zip(self._servers, values, strict=True):
      with tf.device(server.share.replica.device):
        count = len(server.share.variables)
        norms += [statistics.norm(value) for value in some[:count]]
    with tf.device(self._servers[0].share.replica.device):
      return clipping.clip_factor(norms, self._clip_norm)


class _Server:
  """One server: its share of the parameters, and what it holds of gradients."""

  def __init__(
    self,
    share: async_shares.Share,
    optimizer: optimizers.Optimizer,
    decoupled_decay: programs.WeightDecay | None,
    aggregate: int,
  ) -> None:
    self.share = share
    self._update = updates.Update(share.replica, optimizer, decoupled_decay)
    self._decode = tf.function(
      share.codec.decode_words, jit_compile=share.codec.compiled
    )
    self._aggregate = aggregate
    variables = *share.replica.trainable, *share.replica.statistics
    # Where one gradient makes an update nothing is held.
    self._held = [
      _zeros(share.replica, v.shape) for v in variables if aggregate > 1
    ]

  def hold(self, buffer: GradientBuffer) -> None:
    with tf.device(self.share.replica.device):
      for total, value in zip(self._held, self._open(buffer), strict=True):
        total.assign_add(value)

  def mean(self, buffer: GradientBuffer) -> list[tf.Tensor]:
    """The mean gradient and the moving statistics; nothing is held then."""
    with tf.device(self.share.replica.device):
      last = self._open(buffer)
      return self._mean(last) if self._held else last

  def update(
    self,
    values: Sequence[tf.Tensor],
    factor: tf.Tensor | None,
    numbers: updates.Numbers,
  ) -> None:
    count = len(self.share.variables)
    with tf.device(self.share.replica.device):
      means, moments = values[:count], values[count:]
      if factor is not None:
        means = [mean * factor for mean in means]
      self._update(means, moments, numbers)

  def _open(self, buffer: GradientBuffer) -> list[tf.Tensor]:
    """The part of a gradient in a buffer, then its moving statistics."""
    words = [tf.convert_to_tensor(buffer.words)]
    gradient = (
      self._decode(words, buffer.scalers.read_value())
      if self.share.variables
      else []
    )
    return [*gradient, *(m.read_value() for m in buffer.moments)]

  @tf.function(jit_compile=True)
  def _mean(self, last: list[tf.Tensor]) -> list[tf.Tensor]:
    means = []
    for total, value in zip(self._held, last, strict=True):
      means.append((total + value) * (1.0 / self._aggregate))
      total.assign(tf.zeros_like(total))
    return means


def _zeros(
  beside: replicas.Replica, shape: Sequence[int], dtype: tf.DType = tf.float32
) -> tf.Variable:
  with tf.device(beside.device):
    return tf.Variable(tf.zeros(shape, dtype), trainable=False)
