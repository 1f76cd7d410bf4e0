"""The end of a step: averages are decoded and the replica is updated."""

import tensorflow as tf

from terngrad.training import descents
from terngrad.training import updates


class StepEnd:
  """The updates of one device, part by part where nothing ties them."""

  def __init__(self, replica, optimizer, shrink, parts):
    """Tries the kernels, once a process; updates compile when first called.

    Args:
      replica: `replicas.Replica`.
      optimizer: `optimizers.Optimizer`.
      shrink: see `updates.make_update`.
      parts: list of `codec.parts.Part`.
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
      arrived: list of `exchange.arrived.Arrived`, of each part.
      statistics: list of float32, the new statistics.
      numbers: see `updates.make_update`.
    """
    with tf.device(self._device):
      if self._whole:
        means = sum((average.mean() for average in arrived), [])
        pairs = zip(sum(self._indices, ()), means, strict=True)
        self._whole([v for _, v in sorted(pairs)], statistics, numbers)
        return
      for update, average in zip(self._updates, arrived, strict=True):
        update(average, numbers)
      if statistics:
        self._update_statistics([], statistics, numbers)


def _update_of_part(replica, optimizer, shrink, codec):
  """A function of an `arrived.Arrived` and `updates.make_update`'s numbers."""
  update = updates.make_update(replica, optimizer, shrink)
  descend = descents.make(replica, optimizer, shrink, codec)

  def apply(average, numbers):
    if descend and average.pieces:
      descend(average.pieces, average.shared, numbers)
    else:
      update(average.mean(), [], numbers)

  return apply
