"""Which changes the outer optimizer applies at an exchange, by overlap.

With an overlap the mean of an exchange arrives during the next local steps and
is applied at the next exchange. With EAGER the outer optimizer applies the
local share of the new change at once, and at the next exchange the mean without
that share: Kale et al., Eager Updates For Overlapped Communication and
Computation in DiLoCo, 2025, https://arxiv.org/abs/2502.12996. So with EAGER the
parameters of the processes differ by the shares that are on their way.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from terngrad.local import options as options_lib

_MEAN, _LOCAL = 'pending_mean', 'pending_local'


class PendingChange(NamedTuple):
  """A mean change that the outer optimizer has not applied yet.

  Attributes:
    means: float32, mean change of all workers; [] if there is none.
    local: float32, this worker's share, which was already applied; [] for none.
  """

  means: list[tf.Tensor]
  local: list[tf.Tensor]

  def rest(self) -> list[tf.Tensor]:
    """The part of the mean that was not applied; [] if there is none."""
    if not self.local:
      return self.means
    if not self.means:
      # The change of some worker was not finite; takes the local share back.
      return [-share for share in self.local]
    pairs = zip(self.means, self.local, strict=True)
    return [mean - share for mean, share in pairs]

  def states(self) -> dict[str, np.ndarray]:
    """Returns the arrays by name, for `load`."""
    return {
      f'{name}:{index}': tensor.numpy()
      for name, tensors in ((_MEAN, self.means), (_LOCAL, self.local))
      for index, tensor in enumerate(tensors)
    }


NOTHING = PendingChange([], [])


def load(states: Mapping[str, np.ndarray], count: int) -> PendingChange:
  """Loads the result of `PendingChange.states`, for `count` parameters."""
  means, local = (
    [
      tf.constant(states[f'{name}:{index}'])
      for index in range(count)
      if f'{name}:{index}' in states
    ]
    for name in (_MEAN, _LOCAL)
  )
  return PendingChange(means, local)


def local_share(
  overlap: str, changes: list[tf.Tensor], num_workers: int
) -> list[tf.Tensor]:
  """The share of a worker's changes that is applied before the mean arrives.

  Returns:
    [] if nothing is: without EAGER, and for changes with NaN or infinity.
  """
  if overlap != options_lib.EAGER:
    return []
  if not all(bool(tf.reduce_all(tf.math.is_finite(c))) for c in changes):
    return []
  return [change / num_workers for change in changes]


def add(first: list[tf.Tensor], second: list[tf.Tensor]) -> list[tf.Tensor]:
  """Adds two lists of changes, of which each may be []."""
  if not first or not second:
    return first or second
  return [a + b for a, b in zip(first, second, strict=True)]
