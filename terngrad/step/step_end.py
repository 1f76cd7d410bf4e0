"""The end of a step: means are decoded and the replica is updated."""

import tensorflow as tf

from terngrad.step import fused_updates
from terngrad.step import updates


class StepEnd:
  """The updates of one device, part by part where nothing ties them."""

  def __init__(self, replica, optimizer, decoupled_decay, parts, functions):
    """Tries the kernels, once a process; updates compile when first called.

    Args:
      replica: `replicas.Replica`.
      optimizer: `optimizers.Optimizer`.
      decoupled_decay: see `updates.make_update`.
      parts: list of `reduce.parts.Part`.
      functions: list of `nodes.Functions`, of each part.
    """
    self._device = replica.device
    self._indices = [part.indices for part in parts]
    # A clip looks at all gradients, and so does the loss scale.
    count = len(replica.trainable)
    if optimizer.clip_norm or replica.scaling:
      indices = tuple(sorted(sum(self._indices, ())))
      if len(indices) < count:
        replica = replica.part(indices, range(len(replica.statistics)))
      self._whole = updates.make_update(replica, optimizer, decoupled_decay)
      return
    self._whole = None
    self._updates = [
      _update_of_part(
        replica.part(part.indices, ()),
        optimizer,
        updates.decoupled_decay_of(decoupled_decay, part.indices, count),
        part.codec,
      )
      for part in parts
    ]
    statistics = replica.part((), tuple(range(len(replica.statistics))))
    self._update_statistics = updates.make_update(statistics, optimizer, None)

  def __call__(self, pending, statistics, numbers):
    """Updates the replica.

    Args:
      pending: list of `rounds.PendingMean`, of each part.
      statistics: list of float32, the new statistics.
      numbers: see `updates.make_update`.
    """
    with tf.device(self._device):
      if self._whole:
        means = sum((one.means() for one in pending), [])
        pairs = zip(sum(self._indices, ()), means, strict=True)
        self._whole([v for _, v in sorted(pairs)], statistics, numbers)
        return
      for update, one in zip(self._updates, pending, strict=True):
        update(one, numbers)
      if statistics:
        self._update_statistics([], statistics, numbers)


def _update_of_part(replica, optimizer, decoupled_decay, codec):
  """A function of a `rounds.PendingMean` and the numbers of an update."""
  update = updates.make_update(replica, optimizer, decoupled_decay)
  fused = fused_updates.make(replica, optimizer, decoupled_decay, codec)

  def apply(pending, numbers):
    if fused and fused_updates.fits(codec, pending.received):
      fused(pending.received, pending.turn, numbers)
    else:
      update(pending.means(), [], numbers)

  return apply
