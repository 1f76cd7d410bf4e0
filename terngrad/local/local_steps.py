"""Local steps for training loops of any framework."""

import time
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import TypeAlias

import numpy as np
from absl import logging

from terngrad import errors
from terngrad.cluster import spec
from terngrad.local import channel as channels
from terngrad.local import loaded_states
from terngrad.local import options as options_lib
from terngrad.local import supervisor as supervisors
from terngrad.recipes import catalog

# NumPy, or an array of another library with __array__ or __dlpack__.
ArrayLike: TypeAlias = Any
SENT, SECONDS, WAITING = FIGURES = (
  'sent_bytes',
  'exchange_seconds',
  'waiting_seconds',
)
_STEPS, _SHIFT = 'steps', 'shift'


class LocalSteps:
  """Exchanges the parameters that a process has trained.

      steps = terngrad.LocalSteps(every=30, codec='error_feedback+stc')
      parameters = steps.start(parameters)
      for batch in batches:
        train(parameters, batch)
        if steps.count_step():
          parameters = steps.exchange(parameters)
      parameters = steps.complete(parameters)

  TF_CONFIG, which `terngrad launch` sets, lists the processes. Without it there
  is one process. Each needs the same shapes and options.

  Attributes:
    options: of the run.
    rank: index of this process in TF_CONFIG, from 0.
    figures: by name, sums since `reset_figures`: 'sent_bytes', bytes of coded
      changes that this process sent; 'exchange_seconds', seconds of exchanges,
      overlapped or not; 'waiting_seconds', seconds that training waited.
  """

  def __init__(
    self,
    every: int | None = None,
    codec: options_lib.CodecTexts | None = None,
    outer: str | None = None,
    outer_learning_rate: float | None = None,
    *,
    recipe: str = '',
    overlap: str = options_lib.NONE,
    on_lost_worker: str = options_lib.WAIT,
    lost_after: float = 60.0,
    seed: int = 0,
  ) -> None:
    """Checks numbers and choices; see `options.LocalOptions`.

    `start` starts the helper process, which checks `codec` and `outer`.
    `recipe` is a name of `terngrad.recipes`. It sets `every`, `codec`, `outer`
    and `outer_learning_rate`, unless they are given; the log lists the values.
    The inner optimizer stays that of the caller.

    Raises:
      ValueError: an option is out of its range, or TF_CONFIG is invalid.
    """
    values, line = options_lib.with_recipe(
      recipe,
      {
        'every': every,
        'codec': codec,
        'outer': outer,
        'outer_learning_rate': outer_learning_rate,
      },
    )
    self.options = options_lib.LocalOptions(
      **values,
      overlap=overlap,
      on_lost_worker=on_lost_worker,
      lost_after=lost_after,
      seed=seed,
    )
    self._cluster: spec.Cluster = options_lib.find_cluster()
    self.rank = self._cluster.index
    if recipe:
      catalog.find(recipe).check_workers(len(self._cluster.jobs['worker']))
      if self.rank == 0:
        # A warning, since absl shows no lower level by default.
        logging.warning('Local steps: %s', line)
    self._supervisor: supervisors.Supervisor | None = None
    # States for the next `start`; None if nothing was loaded or completed.
    self._loaded: Mapping[str, np.ndarray] | None = None
    # True: they are of a run that `complete` ended, so only for `get_states`.
    self._is_completed = False
    self._exchanges = self._steps = 0
    self.figures: dict[str, float] = {}
    self.reset_figures()

  def reset_figures(self) -> None:
    """Sets all `figures` to 0."""
    self.figures = dict.fromkeys(FIGURES, 0.0)

  def start(
    self,
    arrays: Sequence[ArrayLike],
    statistics: Sequence[ArrayLike] = (),
    names: Sequence[str] = (),
  ) -> list[np.ndarray]:
    """Joins the other processes; blocks until all have joined.

    After a run that did not call `complete` it continues from the states of
    that run, unless `load` has replaced them. After `complete` a new run
    begins; `load(get_states())` before continues that run's outer optimizer and
    codes.

    Args:
      arrays: float32, the parameters.
      statistics: float32, arrays that are averaged without a codec.
      names: of the parameters, for a codec by names; () for their indices.

    Returns:
      Parameters and statistics to go on with: those of process 0; after `load`
      `arrays` and `statistics`, with the correction that the states may hold.

    Raises:
      errors.ConfigError: an option or a loaded state is refused, or processes
        differ.
      ValueError: an array is not float32, there are no parameters, or not as
        many names as parameters.
    """
    if len(arrays) == 0:
      raise ValueError(
        'arrays: expected one or more parameters, received none. Pass the '
        'trained parameters of the model.'
      )
    values = [*map(_as_float32, (*arrays, *statistics))]
    count = len(arrays)
    shapes = [list(value.shape) for value in values]
    specs = _specs(names, shapes[:count])
    self.close()
    if self._is_completed:
      self.load({})
    if self._loaded:
      loaded_states.check(self._loaded, shapes[:count], shapes[count:])
    self._supervisor = supervisors.Supervisor(
      self.options, self._cluster, specs, shapes[count:]
    )
    if self._loaded:
      self._supervisor.load(self._loaded)
    self._write(values)
    answer = self._supervisor.start()
    # From here on the states are those of the helper.
    loaded, self._loaded = self._loaded or {}, None
    self._exchanges, self._steps = answer['exchanges'], 0
    if answer['assign']:
      return self._outputs()
    self._steps = int(loaded.get(_STEPS, 0))
    shifts = [loaded.get(f'{_SHIFT}:{i}') for i in range(len(values))]
    pairs = zip(values, shifts, strict=True)
    return [v if shift is None else v + shift for v, shift in pairs]

  def count_step(self, count: int = 1) -> bool:
    """Counts local steps; returns whether an exchange is due."""
    self._steps += count
    return self._steps >= self.options.every

  def exchange(
    self, arrays: Sequence[ArrayLike], statistics: Sequence[ArrayLike] = ()
  ) -> list[np.ndarray]:
    """Exchanges the change of the parameters since the last exchange.

    Args:
      arrays: float32, the parameters after the local steps.
      statistics: float32, as in `start`.

    Returns:
      Parameters and statistics to go on with, float32, new arrays.

    Raises:
      errors.TrainingError: `start` was not called, or the exchange failed.
    """
    return self._ask(
      channels.EXCHANGE,
      (*arrays, *statistics),
      exchanges=self._exchanges,
    )

  def complete(
    self, arrays: Sequence[ArrayLike], statistics: Sequence[ArrayLike] = ()
  ) -> list[np.ndarray]:
    """Exchanges the last local steps and ends the helper.

    It applies all changes, whatever the overlap, so that processes that call it
    after the same exchange end with equal parameters. If the others go on, the
    last local steps of this process, and a mean that is on its way, are lost.
    Arguments and results are as in `exchange`.
    """
    found = self._ask(
      channels.FINISH, (*arrays, *statistics), has_steps=self._steps > 0
    )
    # States that were loaded since `start` are of other parameters.
    self._loaded = None
    self.close()
    self._is_completed = True
    return found

  def get_states(self) -> dict[str, np.ndarray]:
    """Returns parameters, slots, residuals and counts by name, for `load`.

    It waits for an exchange that is on its way. The local parameters are not
    among them: save them too.
    """
    if self._supervisor is None:
      return dict(self._loaded or {})
    states = self._supervisor.states()
    if not states:
      # `start` did not return.
      return {}
    # The local parameters that the caller saves do not have them yet.
    shifts = {
      f'{_SHIFT}:{index}': shift
      for index, shift in enumerate(self._supervisor.shifts)
    }
    return states | shifts | {_STEPS: np.array(self._steps)}

  def load(self, states: Mapping[str, np.ndarray]) -> None:
    """Sets the states from which `start` continues; {} for a new start.

    `states` is a result of `get_states`, of this or another process.
    """
    self._loaded = {name: np.asarray(value) for name, value in states.items()}
    self._is_completed = False

  def close(self) -> None:
    """Ends the helper without an exchange, and keeps the states for `start`.

    It waits for an exchange that is on its way.

    Raises:
      errors.TrainingError: the helper was lost before it saved the states, so
        the next `start` begins without states.
    """
    if self._supervisor is None:
      return
    try:
      if self._loaded is None:
        self._loaded = self.get_states()
    finally:
      self._supervisor.end()
      self._cluster = options_lib.without(self._cluster, self._supervisor.lost)
      self._supervisor = None

  def _ask(
    self, request: str, arrays: Sequence[ArrayLike], **more: Any
  ) -> list[np.ndarray]:
    started = time.monotonic()
    self._shared.settle()
    values = [*map(_as_float32, arrays)]
    if self._shared.shifts:
      pairs = zip(values, self._shared.shifts, strict=True)
      values = [value + shift for value, shift in pairs]
    self._write(values)
    self._shared.shifts = []
    answer = self._shared.request(do=request, **more)
    self._exchanges, self._steps = answer['exchanges'], 0
    self.figures[WAITING] += time.monotonic() - started
    for name in (SENT, SECONDS):
      self.figures[name] += answer.get(name, 0)
    if not answer.get('is_finite', True):
      logging.warning(
        'Local steps: expected finite numbers, received NaN or infinity in the '
        'change of some process. This exchange changes no parameter; lower the '
        'learning rate if it happens again.'
      )
    return self._outputs()

  def _write(self, values: Sequence[np.ndarray]) -> None:
    arrays = self._shared.arrays.inputs
    received = [value.shape for value in values]
    if received != [array.shape for array in arrays]:
      raise ValueError(
        'arrays: expected the shapes of start, '
        f'{[array.shape for array in arrays]}, received {received}. Pass all '
        'arrays in the same order.'
      )
    for array, value in zip(arrays, values, strict=True):
      array[...] = value

  def _outputs(self) -> list[np.ndarray]:
    return [array.copy() for array in self._shared.arrays.outputs]

  @property
  def _shared(self) -> supervisors.Supervisor:
    if self._supervisor is None:
      raise errors.TrainingError(
        'Local steps: expected a call of start before, received none. Call '
        'start with the parameters before the first local step.'
      )
    return self._supervisor


def _specs(
  names: Sequence[str], shapes: Sequence[list[int]]
) -> list[tuple[str, list[int]]]:
  """Returns (name, shape) of each parameter; without names their indices.

  Raises:
    ValueError: there are not as many names as shapes.
  """
  if names and len(names) != len(shapes):
    raise ValueError(
      f'names: expected one for each of {len(shapes)} parameters, received '
      f'{len(names)}. Pass all of them, or none.'
    )
  return [*zip(names or map(str, range(len(shapes))), shapes, strict=True)]


def _as_float32(array: ArrayLike) -> np.ndarray:
  """Returns an array of any library as float32, without a copy if possible.

  Raises:
    ValueError: its dtype is not float32.
  """
  try:
    value = np.asarray(array)
  except (TypeError, ValueError):
    value = np.from_dlpack(array)
  if value.dtype != np.float32:
    raise ValueError(
      f'arrays: expected float32, received {value.dtype} of shape '
      f'{value.shape}. Pass the float32 master weights, or convert them.'
    )
  return value
