"""Local steps in `fit`, with any backend of Keras."""

import itertools
import os
from typing import Any
from typing import TypeAlias

import keras
import numpy as np

from terngrad.keras import recipe_optimizers
from terngrad.keras import saved_states
from terngrad.local import local_steps
from terngrad.local import options as options_lib
from terngrad.step import model_variables

AVERAGE, KEEP = STATISTICS = ('average', 'keep')
_Logs: TypeAlias = dict[str, Any] | None


class LocalStepsCallback(keras.callbacks.Callback):
  """Trains in several processes that exchange once in `every` batches.

      steps = terngrad.keras.LocalSteps(every=30, codec='error_feedback+stc')
      model.fit(shard_of_this_process, callbacks=[steps])

  Each process, started by `terngrad launch`, trains its model by `fit` without
  a strategy. After `every` batches it sends the coded change of its parameters,
  and all go on from the result of the outer optimizer. A helper process does
  this, so the backend may be TensorFlow, JAX or PyTorch. When `fit` ends, all
  processes have equal parameters.

  The logs of each epoch get 'sent_bytes', 'exchange_seconds' and
  'waiting_seconds', see `local_steps.LocalSteps.figures`. Put the callback
  before those that read logs or set weights.
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
    statistics: str = AVERAGE,
    resume_from: str | os.PathLike[str] = '',
  ) -> None:
    """Creates the callback; the exchange starts with the first epoch.

    Args:
      every: H, number of batches between two exchanges. With
        `steps_per_execution` an exchange waits for the end of an execution.
      codec: code of the change; see `local_steps.LocalSteps` for the others.
      outer: the outer optimizer, a text as for `--optimizer`.
      outer_learning_rate: of the outer optimizer.
      recipe: name of a published recipe, for the arguments not given above.
      overlap: 'none', 'delayed' or 'eager'.
      on_lost_worker: 'wait' or 'continue'.
      lost_after: seconds without a heartbeat after which a process is lost.
      seed: integer, seed of the random codes.
      statistics: 'average' averages float32 moving statistics at each exchange,
        without a code; 'keep' leaves each process its own.
      resume_from: a file of `Model.save` or `save_weights` of this process, to
        continue from its weights and states. `BackupAndRestore` needs none.

    Raises:
      ValueError: an option is out of its range, or TF_CONFIG is invalid.
    """
    super().__init__()
    if statistics not in STATISTICS:
      raise ValueError(
        f'statistics: expected one of {", ".join(STATISTICS)}, received '
        f"{statistics!r}. Use statistics='average'."
      )
    self._steps = local_steps.LocalSteps(
      every,
      codec,
      outer,
      outer_learning_rate,
      recipe=recipe,
      overlap=overlap,
      on_lost_worker=on_lost_worker,
      lost_after=lost_after,
      seed=seed,
    )
    self._recipe = recipe
    self._averages = statistics == AVERAGE
    self._resume_from = resume_from
    self._is_started, self._is_checked, self._last_batch = False, False, -1
    self._parameters: list[keras.Variable] = []
    self._statistics: list[keras.Variable] = []
    self._trained: list[list[np.ndarray]] = []  # At the last epoch's end.

  def set_model(self, model: keras.Model) -> None:
    """Lets the model's files contain the states; loads `resume_from`, once.

    Raises:
      ValueError: the model has an attribute of the name that the states need.
    """
    super().set_model(model)
    found = getattr(model, saved_states.ATTRIBUTE, None)
    if not isinstance(found, saved_states.SavedStates | None):
      raise ValueError(
        f'model: expected none with an attribute {saved_states.ATTRIBUTE}, '
        f'under which its files hold the states, received {found!r}. Give the '
        'attribute another name.'
      )
    setattr(
      model, saved_states.ATTRIBUTE, saved_states.SavedStates(self._steps)
    )
    # Not in on_train_begin, where `BackupAndRestore` restores newer ones.
    if self._resume_from:
      if not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)
      model.load_weights(self._resume_from)
      self._resume_from = ''

  def on_train_begin(self, logs: _Logs = None) -> None:
    """Compares the optimizer with the recipe's."""
    del logs
    self._is_started = False
    if self._recipe:
      recipe_optimizers.compare(self._recipe, self.model.optimizer)

  def on_epoch_begin(self, epoch: int, logs: _Logs = None) -> None:
    """Joins the other processes, in the first epoch of `fit`."""
    del epoch, logs
    self._last_batch = -1
    self._steps.reset_figures()
    # Not in on_train_begin, where a later callback may restore the model.
    if not self._is_started:
      self._join()

  def on_train_batch_end(self, batch: int, logs: _Logs = None) -> None:
    """Exchanges, if `every` batches have passed since the last exchange."""
    del logs
    count, self._last_batch = batch - self._last_batch, batch
    self._check_parameters()
    if self._steps.count_step(count):
      self._assign(self._steps.exchange(*self._values()))

  def on_epoch_end(self, epoch: int, logs: _Logs = None) -> None:
    """Adds the epoch's figures to the logs."""
    del epoch
    # Copies, because arrays of PyTorch change with their variables.
    self._trained = [[np.array(a) for a in arrays] for arrays in self._values()]
    if logs is not None:
      logs.update(self._steps.figures)

  def on_train_end(self, logs: _Logs = None) -> None:
    """Exchanges the last steps; all processes end with equal parameters.

    Variables that Keras (`use_ema`) or a callback has set since the end of the
    last epoch keep these values.
    """
    del logs
    if not self._is_started:
      # No epoch was left, but a restored model may have steps to exchange.
      self._join()
      self._trained = [*self._values()]
    completed = self._steps.complete(*self._trained)
    # Another `fit` continues.
    self._steps.load(self._steps.get_states())
    before, now = (
      itertools.chain(*read) for read in (self._trained, self._values())
    )
    self._assign(
      [
        value if np.array_equal(old, new, equal_nan=True) else new
        for value, old, new in zip(completed, before, now, strict=True)
      ]
    )
    self._trained = []
    self._is_started = False

  def _join(self) -> None:
    """Joins the other processes and takes the common parameters.

    Raises:
      ValueError: the model has no parameters yet.
    """
    variables = model_variables.variables_of(self.model)
    self._parameters = [*variables.trainable]
    self._is_checked = False
    if not self._parameters:
      raise _unbuilt(self.model, 'one without trainable parameters')
    self._statistics = [
      v for v in variables.statistics if v.dtype == 'float32'
    ] * self._averages
    names = variables.names[: len(self._parameters)]
    self._assign(self._steps.start(*self._values(), names))
    self._is_started = True

  def _check_parameters(self) -> None:
    """Checks once, after the first batch, that it made no new parameters.

    Raises:
      ValueError: Keras built a layer in the first batch.
    """
    if self._is_checked:
      return
    self._is_checked = True
    known = set(map(id, self._parameters))
    for variable in self.model.trainable_variables:
      if id(variable) not in known:
        raise _unbuilt(self.model, f'one that made {variable.path} in `fit`')

  def _values(self) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Reads (parameters, statistics) of the model."""
    if keras.backend.backend() == 'jax':
      # `fit` keeps them in its state, and reads assigned variables again.
      self.model.jax_state_sync()
    parameters, statistics = (
      [keras.ops.convert_to_numpy(variable) for variable in variables]
      for variables in (self._parameters, self._statistics)
    )
    return parameters, statistics

  def _assign(self, values: list[np.ndarray]) -> None:
    variables = [*self._parameters, *self._statistics]
    for variable, value in zip(variables, values, strict=True):
      variable.assign(value)


def _unbuilt(model: keras.Model, received: str) -> ValueError:
  return ValueError(
    f'model: expected {model.name} with all its parameters, which the '
    f'processes compare before the first batch, received {received}. Call the '
    'model on one batch, or model.build, before fit.'
  )
