"""What ternary sums leave out, as checkpoints hold it.

Every process keeps the errors of its own slices (`exchange.feedback`). At a
checkpoint the chief gathers them and stores those of all beside the replicas;
a run that is continued deals them out again. They travel as integers, so that
no bit changes, and in pieces, so that the chief alone ever holds many of them.
"""

import contextlib
import itertools

import numpy as np
import tensorflow as tf

from terngrad.training import checkpoints

# Elements of a piece of a slice, about.
_PIECE = 2**20
_NOTHING = np.zeros([0], np.float32)


def gather(exchange):
  """Gives the chief what every process keeps; all call it at the same step.

  Args:
    exchange: `exchange.towers.Towers` or `exchange.collective.Collective`.

  Returns:
    For each of its `kept` float32 [processes, places, width]; [] in other
    processes than the chief.
  """
  found = []
  for kept in exchange.kept:
    pieces = []
    for rows in _pieces(kept.error):
      bits = tf.bitcast(kept.error[rows], tf.int32)
      everyones = exchange.group.gather(bits[tf.newaxis])
      if exchange.group.rank == 0:
        pieces.append(tf.bitcast(everyones, tf.float32))
    if pieces:
      found.append(tf.concat(pieces, axis=1))
  return found


def deal(exchange, everyones):
  """Gives every process its own errors back; all call it together.

  Args:
    exchange: `exchange.collective.Collective`.
    everyones: what the chief's `gather` returned, or an iterator of it; not
      looked at in other processes.
  """
  group = exchange.group
  chief = group.rank == 0
  rest = iter(everyones) if chief else itertools.repeat(None)
  for kept, errors in zip(exchange.kept, rest, strict=chief):
    own = []
    for rows in _pieces(kept.error):
      if chief:
        bits = tf.bitcast(errors[:, rows], tf.int32)
      else:
        # Of the same shape; nobody looks at what others send.
        bits = tf.stack([tf.bitcast(kept.error[rows], tf.int32)] * group.size)
      own.append(tf.bitcast(group.all_to_all(bits)[0], tf.float32))
    kept.error.assign(tf.concat(own, axis=0))


def _pieces(error):
  """Ranges of the places of a variable [places, width]."""
  places, width = error.shape
  count = max(1, _PIECE // width)
  return [slice(first, first + count) for first in range(0, places, count)]


class Shelf:
  """The place of the errors in a checkpoint.

  Attributes:
    variables: dict of name in the checkpoint to variable.
  """

  def __init__(self, exchange):
    """An empty one.

    Args:
      exchange: see `gather`.
    """
    with tf.device('/CPU:0'):
      self.variables = {
        _name(i): tf.Variable(
          _NOTHING, shape=tf.TensorShape(None), trainable=False
        )
        for i in range(len(exchange.kept))
      }

  @contextlib.contextmanager
  def holding(self, everyones):
    """Has what `gather` returned, which is as large as the model, for a while.

    Args:
      everyones: list of float32 [processes, places, width].
    """
    for variable, errors in zip(
      self.variables.values(), everyones, strict=True
    ):
      variable.assign(errors)
    try:
      yield
    finally:
      for variable in self.variables.values():
        variable.assign(_NOTHING)


def read(path):
  """Reads what `Shelf` held, a bucket at a time.

  Args:
    path: checkpoint prefix.

  Yields:
    float32 [processes, places, width].
  """
  reader = tf.train.load_checkpoint(path)
  for i in itertools.count():
    key = _name(i) + checkpoints.VALUE
    if not reader.has_tensor(key):
      return
    yield reader.get_tensor(key)


def _name(place):
  return f'kept_error_{place}'
