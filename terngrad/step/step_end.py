"""The end of a step: means are decoded and the replica is updated."""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from terngrad.reduce import gradients as gradients_lib
from terngrad.reduce import parts as parts_lib
from terngrad.reduce import pending as pending_lib
from terngrad.reduce import programs
from terngrad.step import fused_updates
from terngrad.step import optimizers
from terngrad.step import replicas
from terngrad.step import updates


class _OfPart(NamedTuple):
  """The updates of a part: one of means, and one of messages or None."""

  codec: gradients_lib.GradientCodec
  update: updates.Update
  fused: fused_updates.FusedUpdate | None


class StepEnd:
  """The updates of one device, part by part where nothing ties them."""

  def __init__(
    self,
    replica: replicas.Replica,
    optimizer: optimizers.Optimizer,
    decoupled_decay: programs.WeightDecay | None,
    parts: Sequence[parts_lib.Part],
  ) -> None:
    """Tries the kernels, once a process; updates compile when first called.

    Args:
      replica: of the device.
      optimizer: applied once a step.
      decoupled_decay: see `updates.Update`.
      parts: of the model.
    """
    self._device = replica.device
    self._indices = [part.indices for part in parts]
    # A clip looks at all gradients, and so does the loss scale.
    if optimizer.clip_norm or replica.scaling:
      indices = tuple(sorted(sum(self._indices, ())))
      if len(indices) < len(replica.trainable):
        replica = replica.part(indices, range(len(replica.statistics)))
        decoupled_decay = decoupled_decay and decoupled_decay.part(indices)
      self._whole: updates.Update | None = updates.Update(
        replica, optimizer, decoupled_decay
      )
      return
    self._whole = None
    self._updates: list[_OfPart] = []
    for part in parts:
      variables = replica.part(part.indices, ())
      decay = decoupled_decay and decoupled_decay.part(part.indices)
      self._updates.append(
        _OfPart(
          part.codec,
          updates.Update(variables, optimizer, decay),
          fused_updates.make(variables, optimizer, decay, part.codec),
        )
      )
    statistics = replica.part((), tuple(range(len(replica.statistics))))
    self._update_statistics = updates.Update(statistics, optimizer, None)

  def __call__(
    self,
    pending: Sequence[pending_lib.PendingMean],
    statistics: list[tf.Tensor],
    numbers: updates.Numbers,
  ) -> None:
    """Updates the replica.

    Args:
      pending: of each part.
      statistics: list of float32, the new statistics.
      numbers: of the update.
    """
    with tf.device(self._device):
      if self._whole:
        means = sum((one.means() for one in pending), [])
        pairs = zip(sum(self._indices, ()), means, strict=True)
        self._whole([v for _, v in sorted(pairs)], statistics, numbers)
        return
      for made, one in zip(self._updates, pending, strict=True):
        if made.fused and fused_updates.fits(made.codec, one.received):
          made.fused(one.received, one.step, numbers)
        else:
          made.update(one.means(), [], numbers)
      if statistics:
        self._update_statistics([], statistics, numbers)
