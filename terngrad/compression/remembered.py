"""What methods remember for replicas that are not this package's own.

Rows of arrays, one a worker, as a checkpoint of another library keeps them:
nothing is summed over replicas, and what was loaded waits until the gradients
have shown which of it is needed.
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

from terngrad.codec import dealing
from terngrad.codec import method as methods
from terngrad.codec import policy
from terngrad.codec.methods.wrappers import error_feedback
from terngrad.compression import state_matching
from terngrad.exchange import protocol
from terngrad.reduce import gradients
from terngrad.reduce import states

_T = TypeVar('_T')

_WORKERS, _VARIABLES = 'workers', 'variables'


class Remembered:
  """The states of this process's workers.

  Attributes:
    exchange: between the workers.
    devices: for each device its states.
  """

  def __init__(self, exchange: protocol.Exchange) -> None:
    """Holds no states yet."""
    self.exchange = exchange
    self._shared: list[dict[states.Key, tf.Variable]] = [
      {} for _ in exchange.devices
    ]
    self.devices = [states.DeviceStates({}, one) for one in self._shared]
    self._declared: dict[states.Key, methods.State] = {}
    # All trained variables, which numbers of states count; none until gradients
    # came.
    self._model: Sequence[policy.VariableSpec] = ()
    self._loaded: dict[str, np.ndarray] = {}
    # Those of what was loaded; None for files of 0.2.
    self._loaded_model: Sequence[policy.VariableSpec] | None = None
    # Whether names in `_loaded` count as `_model` does.
    self._placed = True
    # Which of the loaded rows are of this process; None where they are not.
    self._own: slice | None = None

  def declare(
    self,
    codec: gradients.GradientCodec,
    variables: Sequence[int],
    model: Sequence[policy.VariableSpec],
  ) -> None:
    """Makes the variables of a codec's states that are not there yet.

    Args:
      codec: of some gradients.
      variables: for each of them its index in `model`.
      model: all trained variables.
    """
    self._model = model
    dropped = self._place()
    declared = {
      states.Key(key.name, variables[key.variable]): state
      for key, state in states.declared(codec).items()
    }
    fresh = {k: s for k, s in declared.items() if k not in self._declared}
    if fresh:
      self._declared |= fresh
      dropped += apart(lambda: self._make(fresh))
    _warn(dropped)

  def _make(self, fresh: dict[states.Key, methods.State]) -> list[str]:
    """Makes variables with first or loaded values; see `_restore`."""
    for index, device in enumerate(self.exchange.devices):
      count = len(self.exchange.workers_of(index))
      workers = self.devices[index].workers
      workers |= states.of_workers(fresh, device, count)
      of_all = {k: s for k, s in fresh.items() if s.owner == methods.SHARED}
      self._shared[index] |= states.of_replica(of_all, device)
    return self._restore(fresh)

  def arrays(self) -> dict[str, np.ndarray]:
    """All of it, by name, for a checkpoint.

    Of workers float32 [workers of this process, ...], in their order; `workers`
    says which these are: the first one's number, how many, how many there are;
    `variables` which variables the numbers in names count.
    """
    found = dict(self._loaded)
    for key in self._declared:
      found[_name(key)] = np.stack(
        [variable.numpy() for variable in self._in_order(key)]
      )
    if self._declared:
      exchange = self.exchange
      found[_WORKERS] = np.array(
        [exchange.first, exchange.own, exchange.num_workers]
      )
    model = self._model if self._placed else self._loaded_model
    if found and model:
      found[_VARIABLES] = state_matching.encode(model)
    return found

  def load(self, arrays: Mapping[str, np.ndarray]) -> None:
    """Takes what `arrays` returned, in this process or another.

    Where the numbers of workers differ, `codec.dealing` says what becomes of
    the rows, and `state_matching` where the variables do. What fits no variable
    is dropped, and the log names its variable.
    """
    self._loaded = {name: np.asarray(array) for name, array in arrays.items()}
    listed = self._loaded.pop(_VARIABLES, None)
    self._loaded_model = (
      None if listed is None else state_matching.decode(listed)
    )
    self._placed = False
    if _WORKERS in self._loaded:
      self._find_own()
    if self._model:
      _warn(self._place() + self._restore(self._declared))

  def _find_own(self) -> None:
    """Which of the loaded rows are of the workers here."""
    first, count, total = self._loaded[_WORKERS]
    exchange = self.exchange
    begin = exchange.first - first
    has_own = 0 <= begin and begin + exchange.own <= count
    self._own = slice(begin, begin + exchange.own)
    if total != exchange.num_workers or not has_own:
      self._own = None
      logging.warning(
        'States of %d of %d workers were saved and there are %d of %d now: '
        'each gets the mean of those, or its range where it has one.',
        *(count, total, exchange.own, exchange.num_workers),
      )

  def _place(self) -> list[str]:
    """Numbers what was loaded as `_model` does; returns whose is dropped."""
    if self._placed:
      return []
    self._placed = True
    saved, numbers = self._loaded_model, set(map(_number, self._loaded))
    if saved is not None:
      places = state_matching.match(saved, self._model)
    elif numbers - {None} <= set(range(len(self._model))):
      places = {number: number for number in range(len(self._model))}
    else:
      # A variable went; which one is not known.
      places = {}
    loaded, self._loaded = self._loaded, {}
    for name, array in loaded.items():
      number = _number(name)
      if number is None:
        self._loaded[name] = array
      elif number in places:
        self._loaded[f'{name.rpartition(":")[0]}:{places[number]}'] = array
    lost = {n for n in numbers if n is not None} - places.keys()
    return [_spelled(saved, number) for number in lost]

  def residuals(self, indices: Iterable[int]) -> list[list[tf.Variable]]:
    """For each worker of this process its variables of error feedback.

    Args:
      indices: of the variables, in the model.
    """
    keys = (states.Key(error_feedback.RESIDUAL, index) for index in indices)
    rows = [self._in_order(key) for key in keys if key in self._declared]
    return [list(row) for row in zip(*rows, strict=True)]

  def _in_order(self, key: states.Key) -> list[tf.Variable]:
    """The variables of the workers, or the one that they share."""
    workers, shared = zip(*self.devices, strict=True)
    if self._declared[key].owner == methods.SHARED:
      return [shared[0][key]]
    exchange = self.exchange
    count = len(self.devices)
    return [
      workers[exchange.device_of(worker)][key][row // count]
      for row, worker in enumerate(
        range(exchange.first, exchange.first + exchange.own)
      )
    ]

  def _restore(self, keys: Iterable[states.Key]) -> list[str]:
    """Assigns what was loaded of these; returns whose is dropped."""
    rows = {
      key: self._loaded[_name(key)]
      for key in keys
      if _name(key) in self._loaded
    }
    strange = [key for key in rows if not self._fits(key, rows[key])]
    if strange and self._loaded_model is None:
      # One number is wrong, so others may be.
      strange = list(rows)
    for key in rows:
      del self._loaded[_name(key)]
      if key not in strange:
        self._assign(key, rows[key])
    return [_spelled(self._model, key.variable) for key in strange]

  def _fits(self, key: states.Key, rows: np.ndarray) -> bool:
    state = self._declared[key]
    is_cut = state.dealt == methods.RANGES and self._own is None
    return is_cut or rows.shape[1:] == tuple(state.shape)

  def _assign(self, key: states.Key, rows: np.ndarray) -> None:
    if self._declared[key].owner == methods.SHARED:
      for _, shared in self.devices:
        shared[key].assign(rows[0])
      return
    own, exchange = self._own, self.exchange
    if own is None:
      rows = self._for_workers(self._declared[key], rows)
      own = slice(exchange.first, exchange.first + exchange.own)
    rows = rows[own]
    for variable, row in zip(self._in_order(key), rows, strict=True):
      variable.assign(row)

  def _for_workers(self, state: methods.State, rows: np.ndarray) -> np.ndarray:
    """The rows of all workers of now, from those that were saved."""
    if state.dealt == methods.RANGES:
      first, _, total = self._loaded[_WORKERS]
      whole = np.zeros([total, *rows.shape[1:]], np.float32)
      whole[first : first + len(rows)] = rows
      rows = whole
    return dealing.for_workers(state, rows, self.exchange.num_workers)


def apart(make: Callable[[], _T]) -> _T:
  """What a function returns that makes variables, as if called by itself.

  A thread of its own knows neither the graph that is being traced nor the
  strategy, which would make its own kind of variables.
  """
  with concurrent.futures.ThreadPoolExecutor(1) as thread:
    return thread.submit(make).result()


def _name(key: states.Key) -> str:
  return f'{key.name}:{key.variable}'


def _number(name: str) -> int | None:
  """The number of the variable in the name of a state, or None."""
  _, colon, number = name.rpartition(':')
  return int(number) if colon and number.isdecimal() else None


def _spelled(model: Sequence[policy.VariableSpec] | None, number: int) -> str:
  """The path of a variable, or its number where that is all that is known."""
  return (model and model[number].name) or f'variable {number}'


def _warn(dropped: Iterable[str]) -> None:
  if dropped:
    logging.warning(
      'States of codes were saved for %s, which this model does not train, or '
      'not in that shape, or by a code that keeps other shapes. They are '
      'dropped; new ones begin with their first values.',
      ', '.join(sorted(set(dropped))),
    )
