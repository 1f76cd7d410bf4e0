"""The states of gradient methods and gradient passes in checkpoints.

Each process holds the states of its workers. At a checkpoint, the chief gathers
the states of all workers and stores them beside the replicas. A resumed run
scatters them again. They are stored by the names of state and variable, one
array for all workers, so buckets, parts, devices and processes may change
between runs.

States are transferred as integers, which preserves every bit, and in pieces,
so only the chief ever holds many of them.
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
from terngrad.codec import resharding
from terngrad.exchange import group as groups
from terngrad.exchange import protocol
from terngrad.reduce import states as states_lib

# Approximate number of elements per transfer.
_PIECE = 2**20
_EMPTY = np.zeros([0], np.float32)
FOLDER = 'states'
_key = functools.partial(keys.key_of, FOLDER)


class Store:
  """Gathers, stores, reads and scatters the states of a run.

  Attributes:
    variables: by name in the checkpoint; empty except inside `hold`.
  """

  def __init__(
    self,
    states: states_lib.MethodStates,
    exchange: protocol.Exchange,
    parameters: Sequence[str],
  ) -> None:
    """Creates empty variables for the states.

    Args:
      states: states of gradient methods and gradient passes.
      exchange: the exchange between the workers.
      parameters: names of the model's parameters.
    """
    self._exchange = exchange
    names = {
      key: f'{key.name}/{parameters[key.variable]}' for key in states.workers[0]
    }
    self._declared = {name: states.declared[key] for key, name in names.items()}
    self._workers = {
      name: _sort(exchange, [workers[key] for workers in states.workers])
      for key, name in names.items()
    }
    with tf.device('/CPU:0'):
      self.variables = {
        name: tf.Variable(_EMPTY, shape=tf.TensorShape(None), trainable=False)
        for name in self._workers
      }

  def gather(self) -> dict[str, np.ndarray]:
    """Gathers all states on the chief; all processes call it at the same step.

    Returns:
      By name float32 [workers, ...]; {} in processes other than the chief.
    """
    found = {}
    for name, variables in self._workers.items():
      rows = _gather(self._exchange.group, variables)
      if rows is not None:
        found[name] = rows.reshape(-1, *variables[0].shape)
    return found

  def scatter(self, stored: Mapping[str, np.ndarray]) -> None:
    """Distributes the states to all processes; all processes call it.

    Args:
      stored: on the chief, the result of `gather` or the values of `read`; {}
        in other processes. States that are missing in it do not change.
    """
    group = self._exchange.group
    for name, variables in self._workers.items():
      values = stored.get(name)
      if values is not None:
        count = self._exchange.num_workers
        state = self._declared[name]
        values = resharding.convert_state(state, values, count)
      _scatter(group, variables, values)

  @contextlib.contextmanager
  def hold(self, gathered: Mapping[str, np.ndarray]) -> Iterator[None]:
    """Puts the result of `gather` into `variables` for the duration of a block.

    The values may be as large as the model.
    """
    for name, values in gathered.items():
      self.variables[name].assign(values)
    try:
      yield
    finally:
      for name in gathered:
        self.variables[name].assign(_EMPTY)

  def read(
    self, path: str
  ) -> tuple[dict[str, np.ndarray], list[str], list[str]]:
    """Reads the states that a checkpoint saved inside `hold` contains.

    Args:
      path: checkpoint prefix.

    Returns:
      (values by name; names of states missing in the checkpoint; keys of states
      in the checkpoint that this run does not use).
    """
    reader = tf.train.load_checkpoint(path)
    shapes = reader.get_variable_to_shape_map()
    wanted = {name: _key(name) for name in self.variables}
    found = {
      name: reader.get_tensor(key)
      for name, key in wanted.items()
      if key in shapes
    }
    missing = [name for name in self.variables if name not in found]
    unused = set(shapes).difference(wanted.values())
    return found, missing, sorted(k for k in unused if keys.name_of(FOLDER, k))


def _sort(
  exchange: protocol.Exchange, variables: Sequence[Sequence[tf.Variable]]
) -> list[tf.Variable]:
  """Returns the variables of this process's workers, ordered by worker."""
  pairs = itertools.chain.from_iterable(
    zip(exchange.workers_of(index), some, strict=True)
    for index, some in enumerate(variables)
  )
  return [variable for _, variable in sorted(pairs, key=lambda pair: pair[0])]


def _gather(
  group: groups.Group | None, variables: Sequence[tf.Variable]
) -> np.ndarray | None:
  """Gathers the variables of all processes on the chief; None elsewhere.

  Args:
    group: the process group; None for a single process.
    variables: variables of this process, all of one shape.

  Returns:
    float32 [processes, variables per process * elements]; [1, ...] for a single
    process.
  """
  if group is None:
    return np.concatenate([np.ravel(v.numpy()) for v in variables])[np.newaxis]
  columns = []
  for variable in variables:
    bits = tf.bitcast(tf.reshape(variable, [-1]), tf.int32)
    for first in range(0, bits.shape[0], _PIECE):
      gathered = group.all_gather(bits[tf.newaxis, first : first + _PIECE])
      if group.rank == 0:
        columns.append(tf.bitcast(gathered, tf.float32).numpy())
  return np.concatenate(columns, axis=1) if group.rank == 0 else None


def _scatter(
  group: groups.Group | None,
  variables: Sequence[tf.Variable],
  values: np.ndarray | None,
) -> None:
  """Assigns to each process its row of the chief's values, if it has any.

  Args:
    group: the process group; None for a single process.
    variables: variables of this process, all of one shape.
    values: on the chief, the result of `_gather`, in any shape; None leaves the
      variables unchanged. Ignored on other processes.
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
    # Right shape, unused values: only the chief's values are received.
    values = np.zeros([group.size, len(variables) * size], np.float32)
  rows = np.reshape(values, [group.size, -1]).view(np.int32)
  for i, variable in enumerate(variables):
    pieces = []
    for first in range(i * size, (i + 1) * size, _PIECE):
      last = min(first + _PIECE, (i + 1) * size)
      piece = group.all_to_all(tf.constant(rows[:, first:last]))
      pieces.append(tf.bitcast(piece[0], tf.float32))
    variable.assign(tf.reshape(tf.concat(pieces, axis=0), variable.shape))
