"""States of compression methods for the replicas of other frameworks.

Each state is an array with one row per worker, as another library's checkpoint
stores it. Nothing is summed over replicas. Loaded arrays wait until the first
gradients show which states exist.
"""

import concurrent.futures
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import tensorflow as tf
from absl import logging

from terngrad.codec import method as methods
from terngrad.codec import policy
from terngrad.codec import resharding
from terngrad.codec.methods.wrappers import error_feedback
from terngrad.compression import state_arrays
from terngrad.compression import state_matching
from terngrad.exchange import protocol
from terngrad.reduce import gradients
from terngrad.reduce import states

_T = TypeVar('_T')


class CodecStates:
  """The states of this process's workers.

  Attributes:
    exchange: the exchange between the workers.
    devices: for each device its states.
  """

  def __init__(self, exchange: protocol.Exchange) -> None:
    """Creates no states yet."""
    self.exchange = exchange
    self._shared: list[dict[states.Key, tf.Variable]] = [
      {} for _ in exchange.devices
    ]
    self.devices = [states.DeviceStates({}, one) for one in self._shared]
    self._declared: dict[states.Key, methods.State] = {}
    # The variables of the declared states by their indices.
    self._specs: dict[int, policy.VariableSpec] = {}
    # All trained variables; state names end with an index into them. Empty
    # before the first gradients.
    self._model: Sequence[policy.VariableSpec] = ()
    self._loaded: dict[str, np.ndarray] = {}
    # Numbers of the variables of `_waiting` that the log has named.
    self._reported: set[int] = set()
    # The variables of the loaded states; None for files of 0.2.
    self._loaded_model: Sequence[policy.VariableSpec] | None = None
    # Whether the indices in names of `_loaded` refer to `_model`.
    self._is_matched = True
    # Loaded rows of this process's workers; None if they are not among them.
    self._local_rows: slice | None = None

  def declare(
    self,
    codec: gradients.GradientCodec,
    variables: Sequence[int],
    model: Sequence[policy.VariableSpec],
  ) -> None:
    """Creates the variables of a codec's states that do not exist yet.

    Args:
      codec: codec of some gradients.
      variables: for each gradient the index of its variable in `model`.
      model: all trained variables.

    Raises:
      ValueError: an index with states had another variable before, or occurs
        twice.
    """
    declarations = states.declarations(codec)
    declared = {
      states.Key(key.name, variables[key.variable]): state
      for key, state in declarations.items()
    }
    if len(declared) < len(declarations):
      twice = next(i for i in variables if list(variables).count(i) > 1)
      raise ValueError(
        'gradients: expected one for each variable, received two for '
        f'{_path(model, twice)}, whose state of the codec would be updated '
        'twice. Add these gradients first.'
      )
    for index in sorted({key.variable for key in declared}):
      _check_same(index, self._specs.setdefault(index, model[index]), model)
    self._model = model
    dropped = self._match_loaded()
    fresh = {k: s for k, s in declared.items() if k not in self._declared}
    if fresh:
      self._declared |= fresh
      dropped += run_in_thread(lambda: self._make(fresh))
    _warn(dropped)

  def _make(self, fresh: dict[states.Key, methods.State]) -> list[str]:
    """Creates variables with initial or loaded values; see `_restore`."""
    for index, device in enumerate(self.exchange.devices):
      count = len(self.exchange.workers_of(index))
      workers = self.devices[index].workers
      workers |= states.make_worker_variables(fresh, device, count)
      shared = {k: s for k, s in fresh.items() if s.owner == methods.SHARED}
      self._shared[index] |= states.make_shared_variables(shared, device)
    return self._restore(fresh)

  def arrays(self) -> dict[str, np.ndarray]:
    """Returns all states by name, for a checkpoint.

    States of workers are float32 [workers of this process, ...], in the
    workers' order; shared states have one row. 'workers' holds the first worker
    of this process, their number and the number of all workers. 'variables'
    holds the variables that the indices in names refer to, see
    `state_matching`.
    """
    if not self._declared:
      found = dict(self._loaded)
    else:
      exchange = self.exchange
      workers = np.array(
        [exchange.first, exchange.num_local_workers, exchange.num_workers]
      )
      found = self._waiting(workers) | {state_arrays.WORKERS: workers}
    for key in self._declared:
      found[_name(key)] = np.stack(
        [variable.numpy() for variable in self._variables_of(key)]
      )
    model = self._model if self._is_matched else self._loaded_model
    if found and model:
      found[state_arrays.VARIABLES] = state_arrays.encode(model)
    return found

  def _waiting(self, workers: np.ndarray) -> dict[str, np.ndarray]:
    """Returns loaded arrays of variables that were not trained since.

    Not those of other workers than `workers`: a file names its workers once.
    """
    if np.array_equal(self._loaded.get(state_arrays.WORKERS, workers), workers):
      return dict(self._loaded)
    numbers = {
      n for n in map(state_arrays.number_of, self._loaded) if n is not None
    }
    model = self._model if self._is_matched else self._loaded_model
    if not numbers <= self._reported:
      self._reported |= numbers
      logging.warning(
        'Not saved: codec states of %s, which were loaded for other workers '
        'and are not in use: the code has no such states, or the variables '
        'were not trained since.',
        ', '.join(sorted(_path(model, number) for number in numbers)),
      )
    return {
      n: a for n, a in self._loaded.items() if state_arrays.number_of(n) is None
    }

  def load(self, arrays: Mapping[str, np.ndarray]) -> None:
    """Replaces all states by arrays of `arrays`, of this or another process.

    States that are not among the arrays get their initial values. If the number
    of workers differs, `codec.resharding` converts the rows. If the variables
    differ, `state_matching` matches them. States that match no variable are
    dropped, and the log names their variables. The arrays are those that
    `state_arrays.checked` returns.
    """
    self._loaded = dict(arrays)
    self._reported = set()
    listed = self._loaded.pop(state_arrays.VARIABLES, None)
    self._loaded_model = None if listed is None else state_arrays.decode(listed)
    self._is_matched = False
    if state_arrays.WORKERS in self._loaded:
      self._find_local_rows()
    if self._model:
      for key, state in self._declared.items():
        self._fill(key, state.first_value())
      _warn(self._match_loaded() + self._restore(self._declared))

  def _find_local_rows(self) -> None:
    """Finds which of the loaded rows belong to this process's workers."""
    first, count, total = self._loaded[state_arrays.WORKERS]
    exchange = self.exchange
    begin = exchange.first - first
    are_included = 0 <= begin and begin + exchange.num_local_workers <= count
    self._local_rows = slice(begin, begin + exchange.num_local_workers)
    if total != exchange.num_workers or not are_included:
      self._local_rows = None
      logging.warning(
        'Codec states of %d of %d workers were saved; this process has %d of '
        '%d. Each worker loads their mean, or its range of a divided state.',
        *(count, total, exchange.num_local_workers, exchange.num_workers),
      )

  def _match_loaded(self) -> list[str]:
    """Renames loaded states by `_model`; returns variables of dropped ones."""
    if self._is_matched:
      return []
    self._is_matched = True
    saved = self._loaded_model
    numbers = set(map(state_arrays.number_of, self._loaded))
    if saved is not None:
      indices = state_matching.match(saved, self._model)
    elif numbers - {None} <= set(range(len(self._model))):
      indices = {number: number for number in range(len(self._model))}
    else:
      # A variable was removed; which one is unknown.
      indices = {}
    loaded, self._loaded = self._loaded, {}
    for name, array in loaded.items():
      number = state_arrays.number_of(name)
      if number is None:
        self._loaded[name] = array
      elif number in indices:
        self._loaded[f'{name.rpartition(":")[0]}:{indices[number]}'] = array
    lost = {n for n in numbers if n is not None} - indices.keys()
    return [_path(saved, number) for number in lost]

  def residuals(self, indices: Iterable[int]) -> list[list[tf.Variable]]:
    """Returns the error feedback residuals of each worker of this process.

    `indices` are the indices of their variables in the model.
    """
    keys = (states.Key(error_feedback.RESIDUAL, index) for index in indices)
    rows = [self._variables_of(key) for key in keys if key in self._declared]
    return [list(row) for row in zip(*rows, strict=True)]

  def restart_from_means(self) -> None:
    """Gives workers the mean of their states, where a SHARED state holds it.

    For states that no longer have this mean, as after the loss of a worker.
    """
    for key, state in self._declared.items():
      if state.mean_state:
        mean = states.Key(state.mean_state, key.variable)
        (value,) = self._variables_of(mean)
        for variable in self._variables_of(key):
          variable.assign(value)

  def _variables_of(self, key: states.Key) -> list[tf.Variable]:
    """Returns the variable of each worker, or the one that they share."""
    workers, shared = zip(*self.devices, strict=True)
    if self._declared[key].owner == methods.SHARED:
      return [shared[0][key]]
    exchange = self.exchange
    count = len(self.devices)
    return [
      workers[exchange.device_of(worker)][key][row // count]
      for row, worker in enumerate(
        range(exchange.first, exchange.first + exchange.num_local_workers)
      )
    ]

  def _restore(self, keys: Iterable[states.Key]) -> list[str]:
    """Assigns loaded arrays; returns the variables of dropped states."""
    rows = {
      key: self._loaded_rows(key) for key in keys if _name(key) in self._loaded
    }
    mismatched = [key for key in rows if not self._fits(key, rows[key])]
    if mismatched and self._loaded_model is None:
      # If one index is wrong, others may be wrong too.
      mismatched = list(rows)
    for key in rows:
      del self._loaded[_name(key)]
      if key not in mismatched:
        self._assign(key, rows[key])
    return [_path(self._model, key.variable) for key in mismatched]

  def _loaded_rows(self, key: states.Key) -> np.ndarray:
    """Returns the loaded rows of a state, or of its mean if rows are missing.

    The mean of some workers' rows would not be that of all workers, which the
    SHARED state holds.
    """
    mean = states.Key(self._declared[key].mean_state, key.variable)
    if _name(mean) in self._loaded and self._local_rows is None:
      _, count, total = self._loaded.get(state_arrays.WORKERS, (0, 1, 1))
      if count < total:
        return self._loaded[_name(mean)]
    return self._loaded[_name(key)]

  def _fits(self, key: states.Key, rows: np.ndarray) -> bool:
    state = self._declared[key]
    _, count, total = self._loaded[state_arrays.WORKERS]
    is_one = (
      state.owner == methods.SHARED or rows is not self._loaded[_name(key)]
    )
    if len(rows) != (1 if is_one else count):
      return False
    # Ranges have another size for another number of workers.
    if (
      state.resharding == methods.RANGES and total != self.exchange.num_workers
    ):
      return rows.ndim == 1 + len(state.shape)
    return rows.shape[1:] == tuple(state.shape)

  def _assign(self, key: states.Key, rows: np.ndarray) -> None:
    if self._declared[key].owner == methods.SHARED:
      for _, shared in self.devices:
        shared[key].assign(rows[0])
      return
    local_rows, exchange = self._local_rows, self.exchange
    if local_rows is None:
      rows = self._convert_rows(self._declared[key], rows)
      local_rows = slice(
        exchange.first, exchange.first + exchange.num_local_workers
      )
    rows = rows[local_rows]
    for variable, row in zip(self._variables_of(key), rows, strict=True):
      variable.assign(row)

  def _fill(self, key: states.Key, value: tf.Tensor) -> None:
    """Gives all workers the same value of a state."""
    for workers, shared in self.devices:
      is_shared = self._declared[key].owner == methods.SHARED
      for variable in [shared[key]] if is_shared else workers[key]:
        variable.assign(value)

  def _convert_rows(self, state: methods.State, rows: np.ndarray) -> np.ndarray:
    """Converts the saved rows to rows of all current workers."""
    first = int(self._loaded[state_arrays.WORKERS][0])
    count = self.exchange.num_workers
    return resharding.convert_state(state, rows, count, first)


def run_in_thread(make: Callable[[], _T]) -> _T:
  """Calls a function that creates variables in a separate thread.

  A new thread inherits neither the graph being traced nor the strategy, which
  would create variables of another kind.
  """
  with concurrent.futures.ThreadPoolExecutor(1) as thread:
    return thread.submit(make).result()


def _check_same(
  index: int,
  known: policy.VariableSpec,
  model: Sequence[policy.VariableSpec],
) -> None:
  """Refuses gradients of another model, which would get the wrong states."""
  if model[index] != known:
    raise ValueError(
      f'gradients: expected one of {_describe(known)} at index {index}, as in '
      f'earlier calls, received one of {_describe(model[index])}. States '
      'belong to one model: create a Compressor for each model, and pass its '
      'gradients in the same order.'
    )


def _describe(spec: policy.VariableSpec) -> str:
  return f'{spec.name} {list(spec.shape)}'.lstrip()


def _name(key: states.Key) -> str:
  return f'{key.name}:{key.variable}'


def _path(model: Sequence[policy.VariableSpec] | None, number: int) -> str:
  """Returns the path of a variable, or its index if no path is known."""
  return (model and model[number].name) or f'variable {number}'


def _warn(dropped: Iterable[str]) -> None:
  if dropped:
    logging.warning(
      'Saved codec states of %s were dropped and start from initial values: '
      'the model does not train these variables, or their shapes or the shapes '
      "of the codec's states differ from the saved ones.",
      ', '.join(sorted(set(dropped))),
    )
