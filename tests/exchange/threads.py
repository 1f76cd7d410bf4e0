"""The processes of a cluster as threads of one, so that a test takes seconds.

What travels is handed over instead of being sent; all else is the code of
`terngrad.exchange`. Processes are what `test_collective*.py` has.
"""

import concurrent.futures
import threading

import tensorflow as tf

from terngrad.exchange import group

# Seconds that one may wait for the others.
_LIMIT = 300


class Meeting:
  """Where what all bring is laid out for all.

  Attributes:
    turn: a lock. Who does not wait for the others has it: TensorFlow's cache of
      small constants is not for several threads.
  """

  def __init__(self, size):
    self.turn = threading.Lock()
    self._barrier = threading.Barrier(size, timeout=_LIMIT)
    self._brought = [None] * size

  def all(self, rank, *brought):
    """What each brought, in their order."""
    self._brought[rank] = brought
    self._wait()
    found = list(self._brought)
    self._wait()
    return found

  def leave(self):
    """Who does not come any more lets the others fail."""
    self._barrier.abort()

  def _wait(self):
    self.turn.release()
    try:
      self._barrier.wait()
    finally:
      self.turn.acquire()


class Group(group.Group):
  """A `group.Group` whose collectives meet."""

  @classmethod
  def of(cls, meeting, size, rank, piece):
    joined = cls.from_strategy(size, rank)
    joined.piece = piece
    joined._meeting = meeting
    return joined

  def _all(self, tensor, key=None):
    place = self._options(key=key)
    assert place['group_size'] == self.size
    brought = self._meeting.all(self.rank, tensor, int(place['instance_key']))
    tensors, keys = zip(*brought, strict=True)
    # The runtime wants one shape and one key.
    assert len(set(keys)) == 1 and len({t.shape for t in tensors}) == 1
    # And a length has a key of its own.
    assert self._lengths.setdefault(keys[0], tensor.shape) == tensor.shape
    return tensors

  @property
  def _lengths(self):
    return self.__dict__.setdefault('_shapes', {})

  def _gather(self, tensor, key=None):
    return tf.concat(self._all(tensor, key), axis=0)

  def all_reduce(self, tensor):
    return sum(self._all(tensor))

  def all_to_all(self, tensor):
    return tf.stack([rows[self.rank] for rows in self._all(tensor)])


def run(size, piece, function):
  """Calls a function in a thread for each process, with its `Group`.

  Args:
    size: P.
    piece: see `group.Group`.
    function: of a `Group`; what it traces is executed at once.

  Returns:
    What it returned, a list.
  """
  meeting = Meeting(size)

  def one(rank):
    with meeting.turn:
      try:
        return function(Group.of(meeting, size, rank, piece))
      except BaseException:
        meeting.leave()
        raise

  eagerly = tf.config.functions_run_eagerly()
  tf.config.run_functions_eagerly(True)
  try:
    with concurrent.futures.ThreadPoolExecutor(size) as pool:
      threads = [pool.submit(one, rank) for rank in range(size)]
    for thread in threads:
      error = thread.exception()
      if error and not isinstance(error, threading.BrokenBarrierError):
        raise error
    return [thread.result() for thread in threads]
  finally:
    tf.config.run_functions_eagerly(eagerly)
