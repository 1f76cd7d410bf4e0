"""Sums of gradients, computed before the wrapped optimizer asks for them."""

import contextlib
from collections.abc import Iterator
from collections.abc import Sequence

import tensorflow as tf


class WaitingSums:
  """Holds, per replica, the sums that the wrapped optimizer will ask for."""

  def __init__(self) -> None:
    """Holds none at first."""
    self._sums: dict[int, Sequence[tf.Tensor | tf.IndexedSlices]] = {}

  @contextlib.contextmanager
  def hold(
    self, sums: Sequence[tf.Tensor | tf.IndexedSlices]
  ) -> Iterator[None]:
    """Holds the sums of this replica during the block."""
    self._sums[_replica()] = sums
    try:
      yield
    finally:
      del self._sums[_replica()]

  def sums(self) -> Sequence[tf.Tensor | tf.IndexedSlices] | None:
    """Returns the sums of this replica, or None."""
    return self._sums.get(_replica())


def _replica() -> int:
  """Returns the index of the current replica."""
  context = tf.distribute.get_replica_context()
  return int(tf.get_static_value(context.replica_id_in_sync_group))
