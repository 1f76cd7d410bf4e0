"""A Keras optimizer that compresses the gradients it exchanges.

`CompressedOptimizer` wraps any Keras optimizer. Clipping, weight decay, moving
averages and the update stay the wrapped optimizer's code. Only the method that
sums the gradients over the replicas is replaced.
"""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import MutableMapping
from collections.abc import Sequence
from typing import TYPE_CHECKING
from typing import Any
from typing import TypeAlias

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from terngrad import aliases
from terngrad.codec import policy
from terngrad.compression import compressor as compressors
from terngrad.compression import reduced as reduced_lib
from terngrad.compression import variable_codes
from terngrad.keras import biased_codes
from terngrad.keras import not_finite
from terngrad.keras import waiting_sums
from terngrad.keras import wrapping

if TYPE_CHECKING:
  from typing_extensions import Self

Gradient: TypeAlias = compressors.Gradient

# Attributes that Keras, its callbacks and `LossScaleOptimizer` read.
_FORWARDED = (
  '_iterations',
  '_trainable_variables',
  'clipnorm',
  'clipvalue',
  'ema_momentum',
  'ema_overwrite_frequency',
  'global_clipnorm',
  'gradient_accumulation_steps',
  'iterations',
  'learning_rate',
  'loss_scale_factor',
  'use_ema',
  'variables',
  'weight_decay',
)
# Options with which Keras converts sparse gradients to dense ones.
_DENSE_OPTIONS = ('global_clipnorm', 'gradient_accumulation_steps')
_STATE = 'state:'
# The key of a saved configuration that names the import to load it.
_NEEDS = 'to_load_it'


def _forward_property(name: str) -> property:
  """Returns a property that forwards to the wrapped optimizer."""

  def write(self: 'CompressedOptimizer', value: Any) -> None:
    # Keras's constructor assigns before an optimizer is wrapped.
    if '_wrapped' in self.__dict__:
      setattr(self._wrapped.optimizer, name, value)

  return property(
    lambda self: getattr(self._wrapped.optimizer, name),
    write,
    doc=f"The wrapped optimizer's `{name}`.",
  )


@keras.saving.register_keras_serializable(package='terngrad')
class CompressedOptimizer(keras.optimizers.Optimizer):
  """A Keras optimizer that exchanges compressed gradients between replicas.

  It works without a strategy, under `MirroredStrategy` and under
  `MultiWorkerMirroredStrategy`. Without a strategy, gradients are only encoded
  and decoded. The codec's state (error feedback residuals, PowerSGD factors) is
  saved with the model, separately for each replica. A program that loads such a
  model, with `keras.models.load_model`, must `import terngrad.keras` before.

  Examples:
    >>> import keras, terngrad.keras
    >>> model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(2)])
    >>> inner = keras.optimizers.Adam()
    >>> outer = terngrad.keras.CompressedOptimizer(inner, 'ternary')
    >>> model.compile(outer, 'mse')
  """

  def __init__(
    self,
    optimizer: keras.optimizers.Optimizer | str | dict[str, Any],
    codec: variable_codes.CodecOption = 'ternary',
    seed: int = 0,
    name: str | None = None,
    on_not_finite: str = not_finite.SKIP,
    devices_per_worker: int = 1,
  ) -> None:
    """Wraps an optimizer.

    Args:
      optimizer: an optimizer that no other wrapper holds, or any argument of
        `keras.optimizers.get`. To use a loss scale, put `LossScaleOptimizer`
        around this wrapper.
      codec: a codec such as 'ternary' or 'error_feedback+topk:ratio=0.01', or a
        dict from regular expressions to codecs. The first expression that
        matches part of a variable's path selects its codec. A warning is logged
        once for a code that is biased and has no error feedback.
      seed: seed of the random codes.
      name: name of this optimizer. None: 'compressed_' and the name of the
        wrapped optimizer.
      on_not_finite: action for a step in which a gradient of any worker is NaN
        or infinite. 'skip': weights, slots, averages, `iterations` and the
        codec's state do not change, and a warning is logged once. 'raise':
        nothing changes, and `tf.errors.InvalidArgumentError` is raised. 'pass':
        the update of that variable is NaN, as without compression.
      devices_per_worker: K. Each K replicas of a process are one worker: they
        average their gradients in float32, and one of them encodes and sends
        the mean. K divides the replicas of a process, which is checked at the
        first step.

    Raises:
      ValueError: the codec or the action is unknown, K is less than 1, or the
        optimizer cannot be wrapped.
    """
    optimizer = keras.optimizers.get(optimizer)
    wrapping.check(optimizer, CompressedOptimizer)
    wrapping.check_options(optimizer)
    super().__init__(
      learning_rate=0.0, name=name or f'compressed_{optimizer.name}'
    )
    # Keras does not track the attributes of a `tf.Module`. So checkpoints hold
    # the optimizer's variables once, in the same location as without wrapper.
    self._wrapped = tf.Module()
    self._wrapped.optimizer = optimizer
    self._compressor = compressors.Compressor(
      codec, seed, devices_per_worker=devices_per_worker
    )
    biased_codes.warn(codec, devices_per_worker)
    self._warned = False
    self._guard = not_finite.UpdateGuard(on_not_finite)
    self._waiting = waiting_sums.WaitingSums()
    self.rewrap()

  def __getattr__(self, name: str) -> Any:
    """Reads any other attribute, such as `momentum`, from the wrapped one."""
    if name.startswith('__') or '_wrapped' not in self.__dict__:
      raise AttributeError(name)
    if name == 'inner_optimizer':
      return self._wrapped.optimizer
    return getattr(self._wrapped.optimizer, name)

  def __setattr__(self, name: str, value: Any) -> None:
    """Sets an attribute that only the wrapped optimizer has, on that one."""
    wrapped = getattr(self.__dict__.get('_wrapped'), 'optimizer', None)
    if (
      name.startswith('_')
      or name in self.__dict__
      or hasattr(type(self), name)
      or not hasattr(wrapped, name)
    ):
      super().__setattr__(name, value)
    else:
      setattr(wrapped, name, value)

  @property
  def compressor(self) -> compressors.Compressor:
    """The `Compressor` that encodes and sums the gradients."""
    return self._compressor

  @property
  def on_not_finite(self) -> str:
    """Action for a step with a gradient that is not finite."""
    return self._guard.action

  def build(self, variables: Sequence[keras.Variable]) -> None:
    """Creates the wrapped optimizer's variables.

    Args:
      variables: trainable variables, in the order of the gradients.

    Raises:
      ValueError: Keras does not support an option under this strategy.
    """
    wrapping.check_options(self.inner_optimizer)
    if not self.inner_optimizer.built:
      self.inner_optimizer.build(variables)
    self.built = True

  @tf.autograph.experimental.do_not_convert
  def apply(
    self,
    grads: Sequence[Gradient | None],
    trainable_variables: Sequence[keras.Variable] | None = None,
  ) -> None:
    """Sums the compressed gradients of all replicas and applies the sum.

    Args:
      grads: one gradient per variable, or None; dense or `tf.IndexedSlices`.
      trainable_variables: their variables. None: those of `build`.

    Raises:
      ValueError: `unwrap` was called before.
    """
    inner = self.inner_optimizer
    self._check_wrapped()
    if not self.built and trainable_variables is not None:
      with keras.name_scope(self.name):
        self.build(list(trainable_variables))
    self._warn_dense(grads, trainable_variables)
    pairs = self._pairs(grads, trainable_variables)
    if not pairs or self.on_not_finite == not_finite.PASS:
      inner.apply(grads, trainable_variables)
      return
    gradients, variables = zip(*pairs, strict=True)
    chosen = policy_variables(inner, variables)
    # Reduce before the wrapped `apply`, which decays the weights first.
    if inner.gradient_accumulation_steps:
      sums = self._accumulate(gradients, variables, chosen)
    else:
      sums = self._compressor.reduce(
        _cast_float64(self.unscale_and_clip(gradients), variables),
        chosen,
        inner._iterations,
      )
    self._guard.apply(
      self._apply_sums,
      (grads, trainable_variables, sums.values),
      self._finite_check(sums, chosen),
    )

  def _check_wrapped(self) -> None:
    """Refuses updates after `unwrap`, which would not be compressed."""
    replaced = vars(self.inner_optimizer).get(wrapping.REPLACED)
    if getattr(replaced, '__self__', None) is not self:
      raise ValueError(
        'optimizer: expected one that is still wrapped, received '
        f'{self.name} after a call of unwrap. Compile the model with the '
        'optimizer that unwrap returned, or with a new CompressedOptimizer.'
      )

  def _warn_dense(
    self,
    gradients: Sequence[Gradient | None],
    variables: Sequence[keras.Variable] | None,
  ) -> None:
    """Logs once which sparse gradients the wrapped optimizer makes dense."""
    inner = self.inner_optimizer
    causes = dense_causes(inner)
    names = [
      getattr(variable, 'path', variable.name)
      for gradient, variable in zip(
        gradients, variables or inner._trainable_variables, strict=False
      )
      if isinstance(gradient, tf.IndexedSlices)
    ]
    if causes and names and not self._warned:
      self._warned = True
      logging.warning(
        'Compressed as dense gradients: %s. Keras makes sparse gradients '
        '(tf.IndexedSlices) dense because of %s. With only clipnorm or '
        'clipvalue they stay sparse and are sent uncompressed.',
        *(', '.join(names), ' and '.join(causes)),
      )

  def exclude_from_weight_decay(
    self,
    var_list: Sequence[keras.Variable] | None = None,
    var_names: Sequence[str] | None = None,
  ) -> None:
    """Excludes variables from the wrapped optimizer's weight decay."""
    self.inner_optimizer.exclude_from_weight_decay(var_list, var_names)

  def update_step(
    self,
    gradient: Gradient,
    variable: keras.Variable,
    learning_rate: tf.Tensor,
  ) -> None:
    """Updates one variable with the wrapped optimizer, without compression."""
    self.inner_optimizer.update_step(gradient, variable, learning_rate)

  def set_weights(self, weights: Sequence[np.ndarray]) -> None:
    """Sets the wrapped optimizer's variables."""
    self.inner_optimizer.set_weights(weights)

  def scale_loss(self, loss: tf.Tensor) -> tf.Tensor:
    """Multiplies the loss by the wrapped optimizer's `loss_scale_factor`."""
    return self.inner_optimizer.scale_loss(loss)

  def finalize_variable_values(
    self, var_list: Sequence[keras.Variable]
  ) -> None:
    """After `fit`, overwrites variables by their averages if `use_ema`."""
    self.inner_optimizer.finalize_variable_values(var_list)

  def save_own_variables(self, store: MutableMapping[str, np.ndarray]) -> None:
    """Writes the wrapped optimizer's variables and the codec's state."""
    arrays: dict[str, np.ndarray] = {}
    self.inner_optimizer.save_own_variables(arrays)
    for name, array in self._compressor.get_states().items():
      arrays[_STATE + name] = array
    for name, array in arrays.items():
      store[name] = array

  def load_own_variables(self, store: Mapping[str, np.ndarray]) -> None:
    """Loads variables saved by this optimizer or by the wrapped one alone."""
    arrays = {name: store[name] for name in store.keys()}
    states = {n: a for n, a in arrays.items() if n.startswith(_STATE)}
    variables = {n: a for n, a in arrays.items() if n not in states}
    # Load the states first: Keras raises at the first slot of another shape.
    self._compressor.load(
      {name.removeprefix(_STATE): array[...] for name, array in states.items()}
    )
    self.inner_optimizer.load_own_variables(variables)

  def get_config(self) -> dict[str, Any]:
    """Returns the arguments of the constructor, for serialization."""
    return {
      # First, because Keras prints it if a program loads a model without it.
      _NEEDS: 'import terngrad.keras',
      'name': self.name,
      'optimizer': keras.saving.serialize_keras_object(self.inner_optimizer),
      'codec': self._compressor.codec,
      'seed': self._compressor.seed,
      'on_not_finite': self.on_not_finite,
      'devices_per_worker': self._compressor.devices_per_worker,
    }

  @classmethod
  def from_config(
    cls,
    fields: Mapping[str, Any],
    custom_objects: Mapping[str, Any] | None = None,
  ) -> 'Self':
    """Creates an optimizer from the result of `get_config`."""
    optimizer = keras.saving.deserialize_keras_object(
      fields['optimizer'], custom_objects=custom_objects
    )
    named = {name: value for name, value in fields.items() if name != _NEEDS}
    return cls(**{**named, 'optimizer': optimizer})

  def unwrap(self) -> keras.optimizers.Optimizer:
    """Returns the wrapped optimizer and restores its uncompressed sum."""
    self._check_wrapped()
    inner = self.inner_optimizer
    delattr(inner, wrapping.REPLACED)
    return inner

  def rewrap(self) -> None:
    """Undoes `unwrap`."""
    setattr(self.inner_optimizer, wrapping.REPLACED, self._sum)

  # A method that warns, because Keras reads all attributes when it saves.
  def unwrapped(self) -> keras.optimizers.Optimizer:
    """Deprecated: use unwrap."""
    aliases.warn(type(self).__name__, 'unwrapped', 'unwrap')
    return self.unwrap()

  def unscale_and_clip(self, gradients: Sequence[Gradient]) -> list[Gradient]:
    """Unscales and clips one worker's gradients as the wrapped optimizer does.

    Args:
      gradients: float gradients of the loss that `scale_loss` returned.

    Returns:
      Gradients of the same shapes and dtypes.
    """
    return self.inner_optimizer._clip_gradients(self._unscale(gradients))

  def _unscale(self, gradients: Sequence[Gradient]) -> Sequence[Gradient]:
    """Divides gradients by `loss_scale_factor`."""
    scale = self.inner_optimizer.loss_scale_factor
    return gradients if scale is None else [g / scale for g in gradients]

  def _pairs(
    self,
    grads: Sequence[Gradient | None],
    variables: Sequence[keras.Variable] | None,
  ) -> list[tuple[Gradient, keras.Variable]]:
    """Returns pairs to reduce; [] where Keras refuses to apply them."""
    inner = self.inner_optimizer
    if variables is None:
      variables = inner._trainable_variables
    if len(grads) != len(variables):
      return []
    inner._check_variables_are_known(variables)
    return [
      (gradient, variable)
      for gradient, variable in zip(grads, variables, strict=True)
      if gradient is not None
      and not inner._overwrite_variable_with_gradient(variable)
    ]

  def _accumulate(
    self,
    gradients: Sequence[tf.Tensor],
    variables: Sequence[tf.Variable],
    chosen: policy.Variables,
  ) -> reduced_lib.Sums:
    """Adds to the accumulated gradients; reduces them in the last step.

    In all other steps it returns the local totals, without communication.
    """
    inner = self.inner_optimizer
    steps, accumulated = (
      inner.gradient_accumulation_steps,
      inner._accumulated_gradients,
    )
    totals = [
      gradient + accumulated[inner._get_variable_index(variable)]
      for gradient, variable in zip(
        self._unscale(gradients), variables, strict=True
      )
    ]

    def compress() -> reduced_lib.Sums:
      means = inner._clip_gradients([total / steps for total in totals])
      means = _cast_float64(means, variables)
      return self._compressor.reduce(means, chosen, inner._iterations)

    def add() -> reduced_lib.Sums:
      return reduced_lib.Sums(totals, not_finite.are_finite(totals))

    is_last = (inner._iterations + 1) % steps == 0
    return tf.cond(is_last, compress, add)

  def _finite_check(
    self, sums: reduced_lib.Sums, chosen: policy.Variables
  ) -> not_finite.FiniteCheck:
    """Returns which gradients of the step are finite."""
    names = [spec.name for spec in chosen.specs]
    return not_finite.FiniteCheck(
      sums.finite, names, self.inner_optimizer._iterations
    )

  def _apply_sums(
    self,
    grads: Sequence[Gradient | None],
    variables: Sequence[keras.Variable] | None,
    sums: Sequence[Gradient],
  ) -> None:
    """Calls the wrapped optimizer's `apply` with sums already computed."""
    with self._waiting.hold(sums):
      self.inner_optimizer.apply(grads, variables)

  def _sum(
    self, grads_and_vars: Iterable[tuple[Gradient, tf.Variable]]
  ) -> Iterable[tuple[Gradient, tf.Variable]]:
    """Replaces the method by which Keras sums gradients over the replicas."""
    gradients, variables = zip(*grads_and_vars, strict=True)
    sums = self._waiting.sums()
    if sums is None:
      chosen = policy_variables(self.inner_optimizer, variables)
      reduced = self._compressor.reduce(
        _cast_float64(gradients, variables),
        chosen,
        # `iterations` is this divided by `gradient_accumulation_steps`.
        self.inner_optimizer._iterations,
      )
      self._guard.report(self._finite_check(reduced, chosen))
      sums = reduced.values
    return list(zip(sums, variables, strict=True))


for _name in _FORWARDED:
  setattr(CompressedOptimizer, _name, _forward_property(_name))


def policy_variables(
  optimizer: keras.optimizers.Optimizer, variables: Sequence[tf.Variable]
) -> policy.Variables:
  """Returns the `policy.Variables` of some variables of a built optimizer."""
  indices = tuple(optimizer._get_variable_index(v) for v in variables)
  # Keras accepts TensorFlow variables too, which have no path.
  model = tuple(
    policy.VariableSpec(getattr(v, 'path', v.name), tuple(v.shape))
    for v in optimizer._trainable_variables
  )
  specs = tuple(model[index] for index in indices)
  return policy.Variables(indices, specs, model=model)


def dense_causes(optimizer: keras.optimizers.Optimizer) -> list[str]:
  """Lists the options with which Keras makes sparse gradients dense."""
  return [name for name in _DENSE_OPTIONS if getattr(optimizer, name)]


def find_compressed(
  optimizer: keras.optimizers.Optimizer,
) -> CompressedOptimizer:
  """Finds the `CompressedOptimizer` in an optimizer that may wrap it.

  Raises:
    ValueError: there is none.
  """
  inner = optimizer
  while inner is not None and not isinstance(inner, CompressedOptimizer):
    inner = getattr(inner, 'inner_optimizer', None)
  if inner is None:
    name = getattr(optimizer, 'name', None)
    raise ValueError(
      'optimizer: expected a model compiled with CompressedOptimizer, received '
      f'{name}. Wrap it in terngrad.keras.CompressedOptimizer.'
    )
  return inner


def _cast_float64(
  gradients: Sequence[tf.Tensor], variables: Sequence[tf.Variable]
) -> list[tf.Tensor]:
  """Casts float64 gradients to the dtype of their variable.

  The update casts them too.
  """
  return [
    tf.cast(gradient, variable.dtype)
    if not isinstance(gradient, tf.IndexedSlices)
    and gradient.dtype == tf.float64
    else gradient
    for gradient, variable in zip(gradients, variables, strict=True)
  ]
