"""The end of a step: decodes the mean gradients and updates the replica."""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from terngrad.reduce import pending as pending_lib
from terngrad.reduce import programs
from terngrad.reduce import weight_decay
from terngrad.step import fused_updates
from terngrad.step import optimizers
from terngrad.step import replicas
from terngrad.step import updates


class _UpdateGroup(NamedTuple):
  """Parts of the model that one update covers.

  Attributes:
    parts: of the model.
    update: takes the mean gradients of all these parts.
    fused: takes the messages of the only part; None if there is no kernel.
  """

  parts: Sequence[programs.Part]
  update: updates.Update
  fused: fused_updates.FusedUpdate | None = None


class StepEnd:
  """The updates of one device: one per part, or one for the whole model."""

  def __init__(
    self,
    replica: replicas.Replica,
    optimizer: optimizers.Optimizer,
    decoupled_decay: weight_decay.WeightDecay | None,
    parts: Sequence[programs.Part],
  ) -> None:
    """Checks the kernels, once per process; updates compile when called."""
    self._device = replica.device
    self._updates: list[_UpdateGroup] = []
    statistics = tuple(range(len(replica.statistics)))
    # Clipping and loss scaling need all gradients at once.
    self._one_update = bool(optimizer.clip_norm or replica.scaling)
    for group in [parts] if self._one_update else [[part] for part in parts]:
      indices = sorted(i for part in group for i in part.indices)
      decay = decoupled_decay and decoupled_decay.part(indices)
      target = replica.part(indices, statistics if self._one_update else ())
      fused = None
      if not self._one_update:
        fused = fused_updates.make(target, optimizer, decay, group[0].codec)
      update = updates.Update(target, optimizer, decay)
      self._updates.append(_UpdateGroup(group, update, fused))
    self._update_statistics = None
    if statistics and not self._one_update:
      self._update_statistics = updates.Update(
        replica.part((), statistics), optimizer, None
      )

  def __call__(
    self,
    pending: Sequence[pending_lib.PendingMean],
    statistics: tf.Tensor,
    numbers: updates.Numbers,
    finite: tf.Tensor | None = None,
  ) -> None:
    """Updates the replica.

    Args:
      pending: one for each part.
      statistics: float32 [n], the concatenated new moving statistics.
      numbers: (step, learning_rate, averaging_decay).
      finite: as for `updates.Update`.
    """
    with tf.device(self._device):
      for parts, update, fused in self._updates:
        first = pending[parts[0].number]
        if fused and fused_updates.fits(parts[0].codec, first.received):
          fused(first.received, first.step, numbers)
          continue
        means: dict[int, tf.Tensor] = {}
        for part in parts:
          part_means = pending[part.number].means()
          means |= zip(part.indices, part_means, strict=True)
        moments = statistics if update.replica.statistics else None
        update([means[i] for i in sorted(means)], moments, numbers, finite)
      if self._update_statistics:
        self._update_statistics([], statistics, numbers)
