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


class Rendezvous:
  """Passes the values of all threads to all threads.

  Attributes:
    lock: held by the one thread that runs while the others wait, because
      TensorFlow's cache of small constants is not thread-safe.
  """

  def __init__(self, size):
    self.lock = threading.Lock()
    self._barrier = threading.Barrier(size, timeout=_LIMIT)
    self._values = [None] * size

  def all(self, rank, *values):
    """Returns the values of all threads, in the order of their ranks."""
    self._values[rank] = values
    self._wait()
    found = list(self._values)
    self._wait()
    return found

  def leave(self):
    """Lets the waiting threads fail, after this one has failed."""
    self._barrier.abort()

  def _wait(self):
    self.lock.release()
    try:
      self._barrier.wait()
    finally:
      self.lock.acquire()


class Group(group.Group):
  """A `group.Group` whose collectives meet."""

  @classmethod
  def of(cls, rendezvous, size, rank, piece):
    joined = cls.from_strategy(size, rank)
    joined.piece = piece
    joined._rendezvous = rendezvous
    return joined

  def _all(self, tensor, key=None):
    options = self._options(key=key)
    assert options['group_size'] == self.size
    values = self._rendezvous.all(
      self.rank, tensor, int(options['instance_key'])
    )
    tensors, keys = zip(*values, strict=True)
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
  rendezvous = Rendezvous(size)

  def one(rank):
    with rendezvous.lock:
      try:
        return function(Group.of(rendezvous, size, rank, piece))
      except BaseException:
        rendezvous.leave()
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
