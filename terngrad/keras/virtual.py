"""Virtual workers: simulates N workers on one device under Keras `fit`."""

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

from terngrad import arguments
from terngrad.codec import policy
from terngrad.codec.stages import tracing
from terngrad.compression import compressor as compressors
from terngrad.compression import variable_codes
from terngrad.keras import masks
from terngrad.keras import not_finite
from terngrad.keras import optimizer as optimizers
from terngrad.keras import rows as rows_lib

# Options that apply to each worker's gradients and not to their mean.
_WORKER_OPTIONS = (
  'clipnorm',
  'clipvalue',
  'global_clipnorm',
  'loss_scale_factor',
)
_COMPILED_LATER = (
  'model: expected one returned by virtual_workers, received one that was '
  'loaded or compiled later. Call terngrad.keras.virtual_workers again.'
)
# A gradient passed to `apply`, and its variable.
_Applied = tuple[optimizers.Gradient | None, keras.Variable]


def virtual_workers(
  model: keras.Model,
  codec: variable_codes.CodecOption = 'ternary',
  num_workers: int = 4,
  seed: int = 0,
  on_not_finite: str = not_finite.SKIP,
) -> keras.Model:
  """Splits each batch over N virtual workers with compressed gradients.

  The workers compute the gradients of their rows one after the other. Their
  codes are summed as those of N machines would be, and the optimizer takes one
  step. A step takes the time of N smaller batches, and the memory of one
  gradient per worker.

  If N does not divide the batch, workers get one row more or less, and
  gradients are weighted in proportion. If the batch has fewer rows than
  workers, as the last of an epoch may have, some workers get none and encode
  zeros. The loss of a masked output is the mean over the unmasked positions of
  the batch. Layers see one worker's rows at a time: batch normalization
  normalizes over them, as on N machines, and updates its moving averages N
  times per batch. Sparse gradients of embeddings (`tf.IndexedSlices`) are
  summed as float32, which is logged once.

  Args:
    model: a compiled model with Keras's `train_step`, created outside of a
      strategy. It is modified. Call this function again after another `compile`
      or after `load_model`; the codec's state is preserved.
    codec: a codec or a dict of them, as in `CompressedOptimizer`.
    num_workers: N >= 1.
    seed: seed of the random codes.
    on_not_finite: 'skip', 'raise' or 'pass', as in `CompressedOptimizer`.

  Returns:
    The same model.

  Raises:
    ValueError: the model, the optimizer or the codec is not supported.
  """
  _check(model, num_workers)
  if model.built:
    _check_variables(model, codec, num_workers)
  optimizer = model.optimizer
  states: dict[str, np.ndarray] = {}
  with contextlib.ExitStack() as undo:
    if isinstance(optimizer, optimizers.CompressedOptimizer):
      states = optimizer.compressor.get_states()
      rewrap, optimizer = optimizer.rewrap, optimizer.unwrap()
      undo.callback(rewrap)
    wrapper = VirtualOptimizer(
      optimizer, codec, num_workers, seed, on_not_finite=on_not_finite
    )
    undo.pop_all()
  wrapper.compressor.load(states)
  wrapper.built = optimizer.built
  model.optimizer = wrapper
  # `model.save` writes this config, and `load_model` compiles with it.
  model._compile_config.config['optimizer'] = wrapper
  model.train_step = _Step(model, wrapper)
  model.train_function = None
  return model


@keras.saving.register_keras_serializable(package='terngrad')
class VirtualOptimizer(optimizers.CompressedOptimizer):
  """The optimizer of `virtual_workers`; `apply` gets one worker's gradients."""

  def __init__(
    self,
    optimizer: keras.optimizers.Optimizer | str | dict[str, Any],
    codec: variable_codes.CodecOption,
    num_workers: int,
    seed: int = 0,
    name: str | None = None,
    on_not_finite: str = not_finite.SKIP,
  ) -> None:
    """Wraps an optimizer.

    `num_workers` is N; the other arguments are those of `CompressedOptimizer`.

    Raises:
      ValueError: the optimizer accumulates gradients, or `CompressedOptimizer`
        refuses an argument.
    """
    optimizer = keras.optimizers.get(optimizer)
    if steps := getattr(optimizer, 'gradient_accumulation_steps', None):
      raise ValueError(
        'gradient_accumulation_steps: expected None with virtual workers, '
        f'received {steps}. Use a larger batch instead: the workers process '
        'its rows one after the other.'
      )
    compressor = compressors.Compressor(codec, seed, num_workers)
    super().__init__(optimizer, codec, seed, name, on_not_finite)
    self._compressor = compressor
    # A function, because Keras would replace a list by a tracked copy.
    self._record: Callable[[Iterable[_Applied]], None] | None = None

  def get_config(self) -> dict[str, Any]:
    """Returns the arguments of the constructor, for serialization."""
    fields = super().get_config()
    # One replica has all virtual workers.
    del fields['devices_per_worker']
    return fields | {'num_workers': self._compressor.num_workers}

  def apply(
    self,
    grads: Sequence[optimizers.Gradient | None],
    trainable_variables: Sequence[keras.Variable] | None = None,
  ) -> None:
    """Records one worker's gradients for the current `record_gradients` block.

    Raises:
      ValueError: the model was loaded or compiled after `virtual_workers`.
    """
    if self._record is None:
      raise ValueError(_COMPILED_LATER)
    self._check_wrapped()
    self._warn_dense(grads, trainable_variables)
    self._record(zip(grads, trainable_variables or (), strict=True))

  @contextlib.contextmanager
  def record_gradients(self) -> Iterator[list[_Applied]]:
    """Yields a list that collects (gradient or None, variable) of `apply`."""
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
    found: not_finite.FiniteCheck,
  ) -> None:
    """Updates the variables by the mean gradients of all workers."""
    if self.on_not_finite == not_finite.PASS:
      self._guard.report(found)
      self._apply_mean(means, variables)
    else:
      self._guard.apply(self._apply_mean, (means, variables), found)

  def _apply_mean(
    self, means: Sequence[tf.Tensor], variables: Sequence[keras.Variable]
  ) -> None:
    inner = self.inner_optimizer
    options = {name: getattr(inner, name) for name in _WORKER_OPTIONS}
    try:
      for name in options:
        setattr(inner, name, None)
      inner.apply(means, variables)
    finally:
      for name, value in options.items():
        setattr(inner, name, value)

  def _sum(
    self, grads_and_vars: Iterable[tuple[optimizers.Gradient, tf.Variable]]
  ) -> Iterable[tuple[optimizers.Gradient, tf.Variable]]:
    return grads_and_vars


class _Step:
  """A training step that replaces the model's `train_step`."""

  def __init__(self, model: keras.Model, optimizer: VirtualOptimizer) -> None:
    self._model = model
    self._optimizer = optimizer
    self._is_logged = False

  def __call__(self, data: Any) -> dict[str, Any]:
    """Trains on a batch and returns the metrics by name."""
    optimizer = self._optimizer
    if self._model.optimizer is not optimizer:
      raise ValueError(_COMPILED_LATER)
    trained, is_masked = self._trace_gradients(data)
    if not self._model.trainable_variables:
      # Keras warns of it, and only computes the loss and the metrics.
      return keras.Model.train_step(self._model, data)
    variables = [variable for variable, _ in trained]
    chosen = optimizers.policy_variables(
      optimizer.inner_optimizer, [variable.value for variable in variables]
    )
    plain = frozenset(
      spec.name
      for spec, (_, sparse) in zip(chosen.specs, trained, strict=True)
      if sparse
    )
    self._log_sparse(plain)
    reduced = optimizer.compressor.reduce_workers(
      [self._worker_gradients(data, is_masked, variables)],
      chosen._replace(plain=plain),
      [optimizer.iterations],
    )
    (means,), (finite,) = reduced.means, reduced.finite
    means = [tf.cast(m, v.dtype) for m, v in zip(means, variables, strict=True)]
    names = [spec.name for spec in chosen.specs]
    found = not_finite.FiniteCheck(finite, names, optimizer.iterations)
    optimizer.apply_mean(means, variables, found)
    return self._model.get_metrics_result()

  def _worker_gradients(
    self, data: Any, is_masked: bool, variables: list[keras.Variable]
  ) -> Callable[[tf.Tensor], list[tf.Tensor]]:
    """Returns a function from a worker's number to its float32 gradients."""
    # Virtual workers always have a number.
    num_workers = cast(int, self._optimizer.compressor.num_workers)
    rows = rows_lib.Rows(data, num_workers)
    sums_rows = masks.are_sums(self._model)
    unmasked = masks.unmasked_positions(self._model, data) if is_masked else []

    def compute(worker: tf.Tensor) -> list[tf.Tensor]:
      shares = masks.Shares(unmasked, rows.share(worker)) if unmasked else None
      # A sum over rows already has the weight of their number.
      weight = None if sums_rows else rows.weight(worker)
      gradients = [
        _densify(gradient, variable.shape)
        for gradient, variable in self._gradients(rows.slice(worker), shares)[0]
      ]
      return gradients if weight is None else [g * weight for g in gradients]

    def compute_or_zeros(worker: tf.Tensor) -> list[tf.Tensor]:
      if rows.all_have_rows:
        return compute(worker)
      return tf.cond(
        rows.size(worker) > 0,
        lambda: compute(worker),
        lambda: [tf.zeros(variable.shape) for variable in variables],
      )

    return compute_or_zeros

  def _gradients(
    self, data: Any, shares: masks.Shares | None = None
  ) -> tuple[list[tuple[optimizers.Gradient, keras.Variable]], list[bool]]:
    """Computes a worker's gradients, and finds which outputs have a mask.

    Returns:
      Pairs of a gradient and its variable; for each output, whether it has a
      mask.
    """
    model = self._model
    with (
      self._optimizer.record_gradients() as found,
      masks.weight_losses(model, shares) as masked,
    ):
      keras.Model.train_step(model, data)
    pairs = [(g, v) for g, v in found if g is not None]
    clipped = self._optimizer.unscale_and_clip([g for g, _ in pairs])
    gradients = [(g, v) for g, (_, v) in zip(clipped, pairs, strict=True)]
    return gradients, masked

  def _trace_gradients(
    self, data: Any
  ) -> tuple[list[tuple[keras.Variable, bool]], bool]:
    """Traces a step to find its gradients, without running it.

    Returns:
      Pairs of a variable with a gradient, and whether that gradient is sparse;
      and whether an output of the model has a mask.
    """
    found: list[tuple[optimizers.Gradient, keras.Variable]] = []
    masked: list[bool] = []

    # Only traced, never called.
    @tracing.function
    def trial(data: Any) -> None:
      # Traced twice if Keras creates variables of metrics or of the model.
      found[:], masked[:] = self._gradients(data)

    trial.get_concrete_function(data)
    _refuse_types([variable for _, variable in found])
    if not self._optimizer.built:
      self._optimizer.build(self._model.trainable_variables)
    trained = [(v, isinstance(g, tf.IndexedSlices)) for g, v in found]
    return trained, any(masked)

  def _log_sparse(self, plain: frozenset[str]) -> None:
    if plain and not self._is_logged:
      self._is_logged = True
      logging.warning(
        'Not compressed: %s. Sparse gradients (tf.IndexedSlices) are summed '
        'as float32.',
        ', '.join(sorted(plain)),
      )


def _refuse_types(variables: Sequence[keras.Variable]) -> None:
  """Raises ValueError for variables that virtual workers cannot train."""
  for variable in variables:
    if getattr(variable, 'overwrite_with_gradient', False):
      raise ValueError(
        f'{variable.path}: expected a variable that is trained, received a '
        'scale of float8, which every worker would compute for itself. Train '
        'the model without virtual_workers, or do not quantize it.'
      )
    if tf.as_dtype(variable.dtype) == tf.float64:
      raise ValueError(
        f'{variable.path}: expected a variable of float32, float16 or '
        'bfloat16, received float64, which codecs would round to float32. Use '
        "keras.config.set_floatx('float32')."
      )


def _check_variables(
  model: keras.Model, codec: variable_codes.CodecOption, num_workers: int
) -> None:
  """Refuses the variables that a step would refuse, before it is traced."""
  variables = model.trainable_variables
  _refuse_types(variables)
  specs = tuple(policy.VariableSpec(v.path, tuple(v.shape)) for v in variables)
  # Their gradients are sparse and need no codec.
  plain = frozenset(
    variable.path
    for layer in model._flatten_layers()
    if isinstance(layer, keras.layers.Embedding)
    for variable in layer.variables
  )
  chosen = policy.Variables(tuple(range(len(specs))), specs, plain=plain)
  variable_codes.methods(codec, chosen, num_workers)
  variable_codes.check_sparse(codec, sorted(plain))


def _densify(gradient: optimizers.Gradient, shape: tf.TensorShape) -> tf.Tensor:
  """Converts a gradient to dense float32 with a static shape."""
  dense = tf.cast(tf.convert_to_tensor(gradient), tf.float32)
  if dense.shape.is_fully_defined():
    return dense
  return tf.ensure_shape(dense, shape)


def _check(model: keras.Model, num_workers: int) -> None:
  """Raises ValueError if virtual workers do not support the model."""
  arguments.whole_number('num_workers', num_workers, 1)
  if getattr(model, 'optimizer', None) is None:
    raise ValueError(
      f'model: expected a compiled one, received {model.name} without an '
      'optimizer. Call model.compile first.'
    )
  if 'mean_with_sample_weight' in masks.reductions(model):
    raise ValueError(
      "loss: expected reduction='sum_over_batch_size' with virtual workers, "
      'received mean_with_sample_weight, whose divisor would differ between '
      'workers. Divide the sample weights by their mean instead.'
    )
  if type(model).train_step is not keras.Model.train_step:
    raise ValueError(
      'model: expected one with the train_step of keras.Model, received '
      f'{type(model).__name__}, which overrides it. Call terngrad.compress in '
      'that train_step instead.'
    )
  if model.distribute_strategy.num_replicas_in_sync > 1:
    raise ValueError(
      'model: expected one created outside of a strategy, received one of '
      f'{type(model.distribute_strategy).__name__}, whose replicas are the '
      'workers. Use CompressedOptimizer instead of virtual_workers.'
    )
  if isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer):
    raise ValueError(
      'model: expected an optimizer without a loss scale, received '
      'LossScaleOptimizer. Compile with auto_scale_loss=False, or use '
      'mixed_bfloat16.'
    )
