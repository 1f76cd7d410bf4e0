"""What parameter servers do with gradients that come one by one.

The gradients of an update are decoded as they come. All but the last are held
as a float32 sum; with the last the servers average, update the parameters and
hold nothing again.
"""

from typing import NamedTuple

import tensorflow as tf

from terngrad.codec import used_words
from terngrad.codec.stages import statistics
from terngrad.parameter_server import async_shares
from terngrad.reduce import gradients
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
    moments: list of float32, the share's moving statistics.
  """

  words: tf.Variable
  scalers: tf.Variable
  moments: list


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
    self.codec, self._shares = async_shares.share(codec, server)
    alone = len(self._shares) == 1
    # A norm over several servers is no matter of one of them.
    self._clip_norm = 0.0 if alone else optimizer.clip_norm
    if not alone:
      optimizer = optimizer.clipped(0.0)
    self._decodes, self._updates, self._held, self._means = [], [], [], []
    for share in self._shares:
      self._decodes.append(
        tf.function(share.codec.decode_words, jit_compile=share.codec.compiled)
      )
      decay = node_pass.decoupled_decay
      decay = decay and decay.part(share.variables)
      self._updates.append(updates.Update(share.replica, optimizer, decay))
      if aggregate > 1:
        self._held.append(_zeros_beside(share.replica))
        self._means.append(_make_mean(self._held[-1], aggregate))

  def buffers(self, num_nodes):
    """A `GradientBuffer` on each server, for a process of so many nodes."""
    made = []
    for share in self._shares:
      with tf.device(share.replica.device):
        made.append(
          GradientBuffer(
            _zeros([num_nodes, share.codec.num_words], tf.int32),
            _zeros([share.codec.num_probes]),
            [_zeros(v.shape) for v in share.replica.statistics],
          )
        )
    return made

  def put(self, buffers, payloads, scalers, moments):
    """Sends a process's gradient, and its moving statistics, to the servers.

    Args:
      buffers: from `buffers`.
      payloads: int32 [nodes, words], from `codec`.
      scalers: float32 [probes].
      moments: list of float32, of the model.
    """
    for share, buffer in zip(self._shares, buffers, strict=True):
      # Cut where they are, so that a server is sent its own alone.
      messages = share.codec.messages(0)
      pushed = used_words.cut(messages, payloads[:, share.words])
      own = tf.gather(scalers, share.probes)
      with tf.device(share.replica.device):
        buffer.words.assign(used_words.joined(messages, pushed))
        buffer.scalers.assign(own)
        for variable, index in zip(
          buffer.moments, share.statistics, strict=True
        ):
          variable.assign(moments[index])

  def hold(self, buffers):
    """Adds what lies in a process's boxes to what is held."""
    for index, share in enumerate(self._shares):
      with tf.device(share.replica.device):
        values = self._open(index, buffers[index])
        for total, value in zip(self._held[index], values, strict=True):
          total.assign_add(value)

  def update(self, buffers, numbers):
    """Updates the parameters by the mean of what is held and of the boxes.

    Args:
      buffers: of the process whose gradient came last.
      numbers: (step int64 [], learning_rate float32 [], averaging_decay float32
        []).
    """
    values = []
    for index, share in enumerate(self._shares):
      with tf.device(share.replica.device):
        found = self._open(index, buffers[index])
        values.append(self._means[index](found) if self._means else found)
    factor = self._clip_factor(values)
    for index, share in enumerate(self._shares):
      with tf.device(share.replica.device):
        count = len(share.variables)
        means, moments = values[index][:count], values[index][count:]
        if factor is not None:
          means = [mean * factor for mean in means]
        self._updates[index](means, moments, numbers)

  def _open(self, index, buffer):
    """A server's part of a gradient, then its moving statistics."""
    words = [tf.convert_to_tensor(buffer.words)]
    gradient = (
      self._decodes[index](words, buffer.scalers.read_value())
      if self._shares[index].variables
      else []
    )
    return [*gradient, *(m.read_value() for m in buffer.moments)]

  def _clip_factor(self, values):
    """What to multiply gradients with; None where an update clips, or none."""
    if not self._clip_norm:
      return None
    norms = []
    for share, some in zip(self._shares, values, strict=True):
      with tf.device(share.replica.device):
        norms += [statistics.norm(v) for v in some[: len(share.variables)]]
    with tf.device(self._shares[0].replica.device):
      return clipping.clip_factor(norms, self._clip_norm)


def _zeros(shape, dtype=tf.float32):
  return tf.Variable(tf.zeros(shape, dtype), trainable=False)


def _zeros_beside(replica):
  """Variables of zeros like a replica's parameters and moving statistics."""
  with tf.device(replica.device):
    return [_zeros(v.shape) for v in (*replica.trainable, *replica.statistics)]


def _make_mean(held, count):
  """A compiled function: the mean of the held and the last; holds nothing."""

  @tf.function(jit_compile=True)
  def mean(last):
    means = []
    for total, value in zip(held, last, strict=True):
      means.append((total + value) * (1.0 / count))
      total.assign(tf.zeros_like(total))
    return means

  return mean
