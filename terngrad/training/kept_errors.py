"""What ternary sums leave out, as checkpoints hold it.

Every process keeps the errors of its own slices (`exchange.feedback`). At a
checkpoint the chief gathers them and stores those of all beside the replicas;
a run that is continued deals them out again. They travel as integers and one
bucket at a time: no bit changes, and no process but the chief ever holds more
than one bucket of others'.
"""

import contextlib
import itertools

import numpy as np
import tensorflow as tf

from terngrad.training import checkpoints

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
    # As one row, which travels in pieces.
    bits = tf.reshape(tf.bitcast(kept.error.read_value(), tf.int32), [1, -1])
    everyones = exchange.group.gather(bits)
    if exchange.group.rank == 0:
      shape = [exchange.group.size, *kept.error.shape]
      found.append(tf.bitcast(tf.reshape(everyones, shape), tf.float32))
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
    shape = [group.size, *kept.error.shape]
    # Whatever the others send, none looks at but the chief's.
    bits = tf.bitcast(errors, tf.int32) if chief else tf.zeros(shape, tf.int32)
    received = group.all_to_all(tf.ensure_shape(bits, shape))
    kept.error.assign(tf.bitcast(received[0], tf.float32))


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
