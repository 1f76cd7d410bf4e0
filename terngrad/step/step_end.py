"""The end of a step: means are decoded and the replica is updated."""

import tensorflow as tf

from terngrad.step import fused_updates
from terngrad.step import updates


class StepEnd:
  """The updates of one device, part by part where nothing ties them."""

  def __init__(self, replica, optimizer, shrink, parts, functions):
    """Tries the kernels, once a process; updates compile when first called.

    Args:
      replica: `replicas.Replica`.
      optimizer: `optimizers.Optimizer`.
      shrink: see `updates.make_update`.
      parts: list of `codec.parts.Part`.
      functions: list of `nodes.Functions`, of each part.
    """
    self._device = replica.device
    self._indices = [part.indices for part in parts]
    # A clip looks at all gradients, and so does the loss scale.
    if optimizer.clip_norm or replica.scaling:
      self._whole = updates.make_update(replica, optimizer, shrink)
      return
    self._whole = None
    count = len(replica.trainable)
    self._updates = [
      _update_of_part(
        replica.part(part.indices, ()),
        optimizer,
        updates.shrink_of(shrink, part.indices, count),
        part.codec,
      )
      for part in parts
    ]
    statistics = replica.part((), tuple(range(len(replica.statistics))))
    self._update_statistics = updates.make_update(statistics, optimizer, None)

  def __call__(self, arrived, statistics, numbers):
    """Updates the replica.

    Args:
      arrived: list of `rounds.Arrived`, of each part.
      statistics: list of float32, the new statistics.
      numbers: see `updates.make_update`.
    """
    with tf.device(self._device):
      if self._whole:
        means = sum((one.means() for one in arrived), [])
        pairs = zip(sum(self._indices, ()), means, strict=True)
        self._whole([v for _, v in sorted(pairs)], statistics, numbers)
        return
      for update, one in zip(self._updates, arrived, strict=True):
        update(one, numbers)
      if statistics:
        self._update_statistics([], statistics, numbers)


def _update_of_part(replica, optimizer, shrink, codec):
  """A function of a `rounds.Arrived` and `updates.make_update`'s numbers."""
  update = updates.make_update(replica, optimizer, shrink)
  fused = fused_updates.make(replica, optimizer, shrink, codec)

  def apply(arrived, numbers):
    if fused and fused_updates.fits(codec, arrived.received):
      fused(arrived.received, arrived.turn, numbers)
    else:
      update(arrived.means(), [], numbers)

  return apply
