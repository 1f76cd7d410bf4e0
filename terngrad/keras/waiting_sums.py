"""Sums of gradients that are known before the optimizer asks for them."""

import contextlib
from collections.abc import Iterator
from collections.abc import Sequence

import tensorflow as tf


class WaitingSums:
  """Sums that wait for the wrapped optimizer, of each replica of a process."""

  def __init__(self) -> None:
    """Knows none yet."""
    self._sums: dict[int, Sequence[tf.Tensor | tf.IndexedSlices]] = {}

  @contextlib.contextmanager
  def known(
    self, sums: Sequence[tf.Tensor | tf.IndexedSlices]
  ) -> Iterator[None]:
    """Keeps the sums of this replica."""
    self._sums[_replica()] = sums
    try:
      yield
    finally:
      del self._sums[_replica()]

  def sums(self) -> Sequence[tf.Tensor | tf.IndexedSlices] | None:
    """Those of this replica, or None."""
    return self._sums.get(_replica())


def _replica() -> int:
  """The number of the replica that computes."""
  context = tf.distribute.get_replica_context()
  return int(tf.get_static_value(context.replica_id_in_sync_group))
