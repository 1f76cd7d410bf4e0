"""Sums of gradients that are known before the optimizer asks for them."""

import contextlib

import tensorflow as tf


class WaitingSums:
  """Sums that wait for the wrapped optimizer, of each replica of a process."""

  def __init__(self):
    """Knows none yet."""
    self._sums = {}

  @contextlib.contextmanager
  def known(self, sums):
    """Keeps the sums of this replica."""
    self._sums[_replica()] = sums
    try:
      yield
    finally:
      del self._sums[_replica()]

  def sums(self):
    """Those of this replica, or None."""
    return self._sums.get(_replica())


def _replica():
  """The number of the replica that computes."""
  context = tf.distribute.get_replica_context()
  return int(tf.get_static_value(context.replica_id_in_sync_group))
