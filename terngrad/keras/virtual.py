"""What N workers would do, on one device and under stock `fit`."""

import contextlib
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any
from typing import cast

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from terngrad.compression import compressor as compressors
from terngrad.compression import variable_codes
from terngrad.keras import masks
from terngrad.keras import not_finite
from terngrad.keras import optimizer as optimizers
from terngrad.keras import rows as rows_lib

# What is done to each worker's own gradients, and not to their mean.
_OF_WORKERS = ('clipnorm', 'clipvalue', 'global_clipnorm', 'loss_scale_factor')
# A gradient that was applied, and its variable.
_Applied = tuple[optimizers.Gradient | None, keras.Variable]


def virtual_workers(
  model: keras.Model,
  codec: variable_codes.Spelled = 'ternary',
  num_workers: int = 4,
  seed: int = 0,
  on_not_finite: str = not_finite.SKIP,
) -> keras.Model:
  """Lets a model's batches be shared by workers whose gradients are coded.

  Each of the N workers computes, one after the other, the gradient of its rows
  of the batch; the codes of all are added up as those of N machines would be,
  and the optimizer takes one step. It costs the time of N smaller batches, and
  one gradient's memory a worker.

  Where N does not divide a batch, workers get one row more or less, and their
  gradients weights in proportion; of a batch of fewer rows than workers, as the
  last of an epoch may be, some get none, and code zeros. A loss of masked
  outputs is the mean over the unmasked positions of the batch. Layers see one
  worker's rows at a time: batch normalization normalizes by them, as on N
  machines, and its moving averages take N steps a batch. Row gradients of
  embeddings (`tf.IndexedSlices`) are added up as float32, and the log says so
  once.

  Args:
    model: compiled, without a `train_step` of its own, outside of
      a strategy. It is changed. After another `compile`, or `load_model`, call
      this again: what codes remember is kept.
    codec: see `CompressedOptimizer`.
    num_workers: N >= 1.
    seed: of the random codes.
    on_not_finite: see `CompressedOptimizer`.

  Returns:
    The model.

  Raises:
    ValueError: a model, an optimizer or a codec that cannot be.
  """
  _check(model, num_workers)
  rule = model.optimizer
  states: dict[str, np.ndarray] = {}
  if isinstance(rule, optimizers.CompressedOptimizer):
    rule, states = rule.unwrapped(), rule.compressor.saved()
  made = VirtualOptimizer(
    rule, codec, num_workers, seed, on_not_finite=on_not_finite
  )
  made.compressor.load(states)
  made.built = rule.built
  model.optimizer = made
  # What `model.save` writes, and `load_model` compiles again.
  model._compile_config.config['optimizer'] = made
  model.train_step = _Step(model, made)
  model.train_function = None
  return model


@keras.saving.register_keras_serializable(package='terngrad')
class VirtualOptimizer(optimizers.CompressedOptimizer):
  """The optimizer of `virtual_workers`: gets gradients one worker at a time."""

  def __init__(
    self,
    optimizer: keras.optimizers.Optimizer | str | dict[str, Any],
    codec: variable_codes.Spelled,
    num_workers: int,
    seed: int = 0,
    name: str | None = None,
    on_not_finite: str = not_finite.SKIP,
  ) -> None:
    """Wraps an optimizer; see `CompressedOptimizer`.

    Args:
      optimizer: see there.
      codec: see there.
      num_workers: N.
      seed: see there.
      name: see there.
      on_not_finite: see there.

    Raises:
      ValueError: see there; or gradients are accumulated.
    """
    super().__init__(optimizer, codec, seed, name, on_not_finite)
    if self.gradient_accumulation_steps:
      raise ValueError(
        'gradient_accumulation_steps: expected None with virtual workers, '
        f'received {self.gradient_accumulation_steps}. Use a larger batch, '
        'whose rows workers compute one after the other.'
      )
    self._compressor = compressors.Compressor(codec, seed, num_workers)
    # A function: Keras would track a list, as a copy.
    self._record: Callable[[Iterable[_Applied]], None] | None = None

  def get_config(self) -> dict[str, Any]:
    """See `CompressedOptimizer`; with the number of workers."""
    return super().get_config() | {'num_workers': self._compressor.num_workers}

  def apply(
    self,
    grads: Sequence[optimizers.Gradient | None],
    trainable_variables: Sequence[keras.Variable] | None = None,
  ) -> None:
    """Keeps the gradients of a worker."""
    if self._record is None:
      raise ValueError(
        'model: expected one of virtual_workers, received one that was loaded '
        'or compiled since. Call terngrad.keras.virtual_workers once more.'
      )
    self._warn_of_whole_tables(grads, trainable_variables)
    self._record(zip(grads, trainable_variables or (), strict=True))

  @contextlib.contextmanager
  def recorded(self) -> Iterator[list[_Applied]]:
    """Yields a list that gets what is applied: (gradient or None, variable)."""
    found: list[_Applied] = []
    self._record = found.extend
    try:
      yield found
    finally:
      self._record = None

  def apply_mean(
    self,
    means: Sequence[tf.Tensor],
    variables: Sequence[keras.Variable],
    found: not_finite.Found,
  ) -> None:
    """Updates the variables by the mean gradients of all workers.

    Args:
      means: one a variable.
      variables: those to update.
      found: whether the gradients are finite.
    """
    if self.on_not_finite == not_finite.PASS:
      self._guard.report(found)
      self._apply_mean(means, variables)
    else:
      self._guard.apply(self._apply_mean, (means, variables), found)

  def _apply_mean(
    self, means: Sequence[tf.Tensor], variables: Sequence[keras.Variable]
  ) -> None:
    inner = self.inner_optimizer
    kept = {name: getattr(inner, name) for name in _OF_WORKERS}
    try:
      for name in kept:
        setattr(inner, name, None)
      inner.apply(means, variables)
    finally:
      for name, value in kept.items():
        setattr(inner, name, value)

  def _sum(
    self, grads_and_vars: Iterable[tuple[optimizers.Gradient, tf.Variable]]
  ) -> Iterable[tuple[optimizers.Gradient, tf.Variable]]:
    return grads_and_vars


class _Step:
  """A model's training step, in place of its own `train_step`."""

  def __init__(self, model: keras.Model, optimizer: VirtualOptimizer) -> None:
    self._model = model
    self._optimizer = optimizer
    self._told = False

  def __call__(self, data: Any) -> dict[str, Any]:
    """Trains on a batch; see `keras.Model.train_step`."""
    optimizer = self._optimizer
    trained, is_masked = self._trained(data)
    variables = [variable for variable, _ in trained]
    chosen = optimizers.known(
      optimizer.inner_optimizer, [variable.value for variable in variables]
    )
    plain = frozenset(
      spec.name
      for spec, (_, sparse) in zip(chosen.specs, trained, strict=True)
      if sparse
    )
    self._tell(plain)
    reduced = optimizer.compressor.reduce_workers(
      [self._of_worker(data, is_masked, variables)],
      chosen._replace(plain=plain),
      [optimizer.iterations],
    )
    (means,), (finite,) = reduced.means, reduced.finite
    means = [tf.cast(m, v.dtype) for m, v in zip(means, variables, strict=True)]
    names = [spec.name for spec in chosen.specs]
    found = not_finite.Found(finite, names, optimizer.iterations)
    optimizer.apply_mean(means, variables, found)
    return self._model.get_metrics_result()

  def _of_worker(
    self, data: Any, is_masked: bool, variables: list[keras.Variable]
  ) -> Callable[[tf.Tensor], list[tf.Tensor]]:
    """A function of a worker's number to its gradients, float32.

    Args:
      data: of the batch, as Keras gives it.
      is_masked: whether an output of the model is.
      variables: those that gradients are of.
    """
    # It is a number here.
    num_workers = cast(int, self._optimizer.compressor.num_workers)
    rows = rows_lib.Rows(data, num_workers)
    unmasked = masks.unmasked_positions(self._model, data) if is_masked else []

    def computed(worker: tf.Tensor) -> list[tf.Tensor]:
      shares = masks.Shares(unmasked, rows.share(worker)) if unmasked else None
      weight = rows.weight(worker)
      own = [
        _dense(gradient, variable.shape)
        for gradient, variable in self._gradients(rows.of(worker), shares)[0]
      ]
      return own if weight is None else [g * weight for g in own]

    def of_worker(worker: tf.Tensor) -> list[tf.Tensor]:
      if rows.all_work:
        return computed(worker)
      return tf.cond(
        rows.size(worker) > 0,
        lambda: computed(worker),
        lambda: [tf.zeros(variable.shape) for variable in variables],
      )

    return of_worker

  def _gradients(
    self, data: Any, shares: masks.Shares | None = None
  ) -> tuple[list[tuple[optimizers.Gradient, keras.Variable]], list[bool]]:
    """Pairs of a worker's gradient and its variable; which outputs are masked.

    Args:
      data: the worker's rows.
      shares: see `masks.weighed`.
    """
    model = self._model
    with (
      self._optimizer.recorded() as found,
      masks.weighed(model, shares) as masked,
    ):
      keras.Model.train_step(model, data)
    pairs = [(g, v) for g, v in found if g is not None]
    clipped = self._optimizer.clipped([g for g, _ in pairs])
    gradients = [(g, v) for g, (_, v) in zip(clipped, pairs, strict=True)]
    return gradients, masked

  def _trained(
    self, data: Any
  ) -> tuple[list[tuple[keras.Variable, bool]], bool]:
    """What a step is like, before it is computed.

    Returns:
      Pairs of a variable with a gradient, and whether that is of rows; and
      whether an output of the model is masked.
    """
    found: list[tuple[optimizers.Gradient, keras.Variable]] = []
    masked: list[bool] = []

    # Traced to be looked at, and never called.
    @tf.function(autograph=False)
    def trial(data: Any) -> None:
      # Once more where Keras made variables, of metrics or of the model.
      found[:], masked[:] = self._gradients(data)

    trial.get_concrete_function(data)
    _refuse_doubles([variable for _, variable in found])
    if not self._optimizer.built:
      self._optimizer.build(self._model.trainable_variables)
    trained = [(v, isinstance(g, tf.IndexedSlices)) for g, v in found]
    return trained, any(masked)

  def _tell(self, plain: frozenset[str]) -> None:
    if plain and not self._told:
      self._told = True
      logging.warning(
        'Not compressed: %s. Gradients of some rows (tf.IndexedSlices) are '
        'added up as float32.',
        ', '.join(sorted(plain)),
      )


def _refuse_doubles(variables: Sequence[keras.Variable]) -> None:
  """Refuses variables of float64, as `CompressedOptimizer` does."""
  for variable in variables:
    if tf.as_dtype(variable.dtype) == tf.float64:
      raise ValueError(
        f'{variable.path}: expected a variable of float32, float16 or '
        'bfloat16, received float64, of which codes would lose digits. Use '
        "keras.config.set_floatx('float32')."
      )


def _dense(gradient: optimizers.Gradient, shape: tf.TensorShape) -> tf.Tensor:
  """The gradient of a variable as float32; its shape may be unknown."""
  dense = tf.cast(tf.convert_to_tensor(gradient), tf.float32)
  if dense.shape.is_fully_defined():
    return dense
  return tf.ensure_shape(dense, shape)


def _check(model: keras.Model, num_workers: int) -> None:
  """Refuses a model that cannot be shared by virtual workers."""
  if num_workers < 1:
    raise ValueError(
      f'num_workers: expected 1 or more, received {num_workers}. Use 4.'
    )
  if getattr(model, 'optimizer', None) is None:
    raise ValueError(
      f'model: expected a compiled one, received {model.name} without an '
      'optimizer. Call model.compile first.'
    )
  reductions = [
    getattr(loss, 'reduction', None) for loss in keras.tree.flatten(model.loss)
  ]
  if 'mean_with_sample_weight' in reductions:
    raise ValueError(
      "loss: expected reduction='sum_over_batch_size' with virtual workers, "
      'received mean_with_sample_weight, a mean of which the workers have '
      'unequal shares. Divide the sample weights by their mean instead.'
    )
  if type(model).train_step is not keras.Model.train_step:
    raise ValueError(
      'model: expected one with the train_step of keras.Model, received '
      f'{type(model).__name__}, which has its own. Call terngrad.compress '
      'there.'
    )
  if model.distribute_strategy.num_replicas_in_sync > 1:
    raise ValueError(
      'model: expected one outside of a strategy, received one of '
      f'{type(model.distribute_strategy).__name__}, whose replicas are the '
      'workers. Use CompressedOptimizer there.'
    )
  if isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer):
    raise ValueError(
      'model: expected an optimizer without a loss scale, received '
      'LossScaleOptimizer. Compile with auto_scale_loss=False, or use '
      'mixed_bfloat16.'
    )
