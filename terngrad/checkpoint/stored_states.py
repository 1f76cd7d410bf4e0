"""What gradient methods and passes remember, as checkpoints hold it.

Workers' states are spread over the processes. At a checkpoint the chief gathers
them and stores those of all beside the replicas; a run that is continued deals
them out again. They are stored by the names of state and variable, one array
for all workers, so that buckets, parts, devices and processes may change in
between.

They travel as integers, so that no bit changes, and in pieces, so that the
chief alone ever holds many of them.
"""

import contextlib

import numpy as np
import tensorflow as tf

from terngrad.checkpoint import checkpoints
from terngrad.codec import dealing

# Elements that travel at once, about.
_PIECE = 2**20
_NOTHING = np.zeros([0], np.float32)
FOLDER = 'states'


class Store:
  """The states of a run, and their place in its checkpoints.

  Attributes:
    variables: dict of name in the checkpoint to variable, empty but while
      `holding`.
  """

  def __init__(self, states, exchange, parameters):
    """Keeps nothing yet.

    Args:
      states: `states.MethodStates`.
      exchange: see `step.Training`.
      parameters: names of the model's parameters.
    """
    self._exchange = exchange
    names = {
      key: f'{key.name}/{parameters[key.variable]}' for key in states.workers[0]
    }
    self._declared = {name: states.declared[key] for key, name in names.items()}
    self._workers = {
      name: _in_order(exchange, [workers[key] for workers in states.workers])
      for key, name in names.items()
    }
    with tf.device('/CPU:0'):
      self.variables = {
        name: tf.Variable(_NOTHING, shape=tf.TensorShape(None), trainable=False)
        for name in self._workers
      }

  def gather(self):
    """Gives the chief all states; all processes call it at the same step.

    Returns:
      dict of name to array [workers, ...]; {} in other processes than the
      chief.
    """
    found = {}
    for name, variables in self._workers.items():
      rows = _gather(self._exchange.group, variables)
      if rows is not None:
        found[name] = rows.reshape(-1, *variables[0].shape)
    return found

  def scatter(self, stored):
    """Gives every process its states; all call it together.

    Args:
      stored: what the chief's `gather` returned, or `read` read; {} in other
        processes. What is missing stays as it is.
    """
    group = self._exchange.group
    for name, variables in self._workers.items():
      values = stored.get(name)
      if values is not None:
        count = self._exchange.num_workers
        values = dealing.for_workers(self._declared[name], values, count)
      _deal(group, variables, values)

  @contextlib.contextmanager
  def holding(self, gathered):
    """Has what `gather` returned for a while: it may be as large as the model.

    Args:
      gathered: dict of name to array.
    """
    for name, values in gathered.items():
      self.variables[name].assign(values)
    try:
      yield
    finally:
      for name in gathered:
        self.variables[name].assign(_NOTHING)

  def read(self, path):
    """Reads what `holding` held.

    Args:
      path: checkpoint prefix.

    Returns:
      (dict of name to array; names that are missing there; names that are there
      and of no use).
    """
    reader = tf.train.load_checkpoint(path)
    keys = {name: _key(name) for name in self.variables}
    found = {
      name: reader.get_tensor(key)
      for name, key in keys.items()
      if reader.has_tensor(key)
    }
    there = {
      key for key in reader.get_variable_to_shape_map() if _is_state(key)
    }
    return (
      found,
      [name for name in self.variables if name not in found],
      sorted(there - set(keys.values())),
    )


def _in_order(exchange, variables):
  """The variables of this process's workers, from a list a device."""
  found = {}
  for index, some in enumerate(variables):
    found.update(zip(exchange.workers_of(index), some, strict=True))
  return [found[worker] for worker in sorted(found)]


def _gather(group, variables):
  """The chief's array of all processes' variables, or None elsewhere.

  Args:
    group: `exchange.group.Group`, or None for one process alone.
    variables: of this process, of one shape.

  Returns:
    float32 [processes, its variables * elements]; [1, ...] for one alone.
  """
  if group is None:
    return np.concatenate([np.ravel(v.numpy()) for v in variables])[np.newaxis]
  columns = []
  for variable in variables:
    bits = tf.bitcast(tf.reshape(variable, [-1]), tf.int32)
    for first in range(0, bits.shape[0], _PIECE):
      everyones = group.all_gather(bits[tf.newaxis, first : first + _PIECE])
      if group.rank == 0:
        columns.append(tf.bitcast(everyones, tf.float32).numpy())
  return np.concatenate(columns, axis=1) if group.rank == 0 else None


def _deal(group, variables, values):
  """Gives each process its row of what the chief has, if it has something.

  Args:
    group: `exchange.group.Group`, or None for one process alone.
    variables: of this process, of one shape.
    values: what `_gather` returned on the chief, in any shape; None to leave
      the variables as they are. Only the chief's counts.
  """
  if group is None:
    if values is not None:
      for variable, value in zip(
        variables, np.split(np.ravel(values), len(variables)), strict=True
      ):
        variable.assign(value.reshape(variable.shape))
    return
  wanted = tf.constant([int(values is not None)], tf.int32)
  if not int(group.broadcast(wanted)[0]):
    return
  size = variables[0].shape.num_elements()
  if values is None:
    # Of the same shape; nobody looks at what others than the chief send.
    values = np.zeros([group.size, len(variables) * size], np.float32)
  rows = np.reshape(values, [group.size, -1]).view(np.int32)
  for i, variable in enumerate(variables):
    own = []
    for first in range(i * size, (i + 1) * size, _PIECE):
      last = min(first + _PIECE, (i + 1) * size)
      piece = group.all_to_all(tf.constant(rows[:, first:last]))
      own.append(tf.bitcast(piece[0], tf.float32))
    variable.assign(tf.reshape(tf.concat(own, axis=0), variable.shape))


def _key(name):
  """The key of a checkpoint; it writes a slash inside a name as '.S'."""
  escaped = name.replace('.', '..').replace('/', '.S')
  return f'{FOLDER}/{escaped}{checkpoints.VALUE}'


def _is_state(key):
  return key.startswith(f'{FOLDER}/') and key.endswith(checkpoints.VALUE)
