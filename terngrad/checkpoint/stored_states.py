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
import functools
import itertools
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from terngrad.checkpoint import keys
from terngrad.codec import dealing
from terngrad.exchange import group as groups
from terngrad.exchange import protocol
from terngrad.reduce import states as states_lib

# Elements that travel at once, about.
_PIECE = 2**20
_NOTHING = np.zeros([0], np.float32)
FOLDER = 'states'
_key = functools.partial(keys.key_of, FOLDER)


class Store:
  """The states of a run, and their place in its checkpoints.

  Attributes:
    variables: by name in the checkpoint, empty but while `holding`.
  """

  def __init__(
    self,
    states: states_lib.MethodStates,
    exchange: protocol.Exchange,
    parameters: Sequence[str],
  ) -> None:
    """Keeps nothing yet.

    Args:
      states: of methods and passes.
      exchange: between the workers.
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

  def gather(self) -> dict[str, np.ndarray]:
    """Gives the chief all states; all processes call it at the same step.

    Returns:
      By name float32 [workers, ...]; {} in other processes than the chief.
    """
    found = {}
    for name, variables in self._workers.items():
      rows = _gather(self._exchange.group, variables)
      if rows is not None:
        found[name] = rows.reshape(-1, *variables[0].shape)
    return found

  def scatter(self, stored: Mapping[str, np.ndarray]) -> None:
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
  def holding(self, gathered: Mapping[str, np.ndarray]) -> Iterator[None]:
    """Holds what `gather` returned for the time of a block.

    It may be as large as the model.
    """
    for name, values in gathered.items():
      self.variables[name].assign(values)
    try:
      yield
    finally:
      for name in gathered:
        self.variables[name].assign(_NOTHING)

  def read(
    self, path: str
  ) -> tuple[dict[str, np.ndarray], list[str], list[str]]:
    """Reads what `holding` held.

    Args:
      path: checkpoint prefix.

    Returns:
      (values by name; names that are missing there; keys that are there and of
      no use).
    """
    reader = tf.train.load_checkpoint(path)
    there = reader.get_variable_to_shape_map()
    wanted = {name: _key(name) for name in self.variables}
    found = {
      name: reader.get_tensor(key)
      for name, key in wanted.items()
      if key in there
    }
    missing = [name for name in self.variables if name not in found]
    unused = set(there).difference(wanted.values())
    return found, missing, sorted(k for k in unused if keys.name_of(FOLDER, k))


def _in_order(
  exchange: protocol.Exchange, variables: Sequence[Sequence[tf.Variable]]
) -> list[tf.Variable]:
  """The variables of this process's workers, from a list a device."""
  pairs = itertools.chain.from_iterable(
    zip(exchange.workers_of(index), some, strict=True)
    for index, some in enumerate(variables)
  )
  return [variable for _, variable in sorted(pairs, key=lambda pair: pair[0])]


def _gather(
  group: groups.Group | None, variables: Sequence[tf.Variable]
) -> np.ndarray | None:
  """The chief's array of all processes' variables, or None elsewhere.

  Args:
    group: of the processes; None for one process alone.
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


def _deal(
  group: groups.Group | None,
  variables: Sequence[tf.Variable],
  values: np.ndarray | None,
) -> None:
  """Gives each process its row of what the chief has, if it has something.

  Args:
    group: of the processes; None for one process alone.
    variables: of this process, of one shape.
    values: what `_gather` returned on the chief, in any shape; None to leave
      the variables as they are. Only the chief's counts.
  """
  if group is None:
    if values is not None:
      rows = np.reshape(values, [len(variables), *variables[0].shape])
      for variable, row in zip(variables, rows, strict=True):
        variable.assign(row)
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
