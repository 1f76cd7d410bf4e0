"""Any Keras optimizer, with compressed gradients.

The optimizer stays what it is: clips, decay, averages and the update are its
own code. What is replaced is the place where Keras's optimizers add up the
gradients of all replicas.
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

from terngrad.codec import policy
from terngrad.compression import compressor as compressors
from terngrad.compression import reduced as reduced_lib
from terngrad.compression import variable_codes
from terngrad.keras import not_finite
from terngrad.keras import waiting_sums
from terngrad.keras import wrapping

if TYPE_CHECKING:
  from typing_extensions import Self

Gradient: TypeAlias = compressors.Gradient

# What Keras, its callbacks and `LossScaleOptimizer` ask of an optimizer.
_OF_INNER = (
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
# With these Keras makes gradients of rows dense.
_MAKE_DENSE = ('global_clipnorm', 'gradient_accumulation_steps')
_STATE = 'state:'


def _of_inner(name: str) -> property:
  """A property that is the wrapped optimizer's."""

  def write(self: 'CompressedOptimizer', value: Any) -> None:
    # Keras's constructor writes before there is any.
    if '_wrapped' in self.__dict__:
      setattr(self._wrapped.optimizer, name, value)

  return property(
    lambda self: getattr(self._wrapped.optimizer, name),
    write,
    doc=f"The wrapped optimizer's `{name}`.",
  )


@keras.saving.register_keras_serializable(package='terngrad')
class CompressedOptimizer(keras.optimizers.Optimizer):
  """Lets the gradients of all replicas travel as codes.

  Alone, under `MirroredStrategy` and under `MultiWorkerMirroredStrategy`; alone
  gradients are coded and decoded. What a code remembers (error feedback,
  PowerSGD) is saved with the model, that of each replica by itself.

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
    codec: variable_codes.Spelled = 'ternary',
    seed: int = 0,
    name: str | None = None,
    on_not_finite: str = not_finite.SKIP,
  ) -> None:
    """Wraps an optimizer.

    Args:
      optimizer: one which no other holds; or what `keras.optimizers.get` takes.
        `LossScaleOptimizer` goes around this one.
      codec: 'ternary', 'error_feedback+topk:ratio=0.01', or a dict of regular
        expressions to such texts: a variable gets that of the first which is
        found in its path.
      seed: of the random codes.
      name: of this optimizer; None for one of the wrapped one's.
      on_not_finite: what becomes of a step in which a gradient of any worker is
        NaN or infinite. 'skip': nothing changes, neither weights, slots,
        averages and `iterations` nor what codes remember, and the log says so
        once. 'raise': nothing changes, and `tf.errors.InvalidArgumentError` is
        raised. 'pass': that variable's update is NaN, as without compression.

    Raises:
      ValueError: a codec or an action that is none, or an optimizer that cannot
        be wrapped.
    """
    optimizer = keras.optimizers.get(optimizer)
    wrapping.check(optimizer, CompressedOptimizer)
    wrapping.check_options(optimizer)
    super().__init__(
      learning_rate=0.0, name=name or f'compressed_{optimizer.name}'
    )
    # Where Keras's walk through attributes does not go: so checkpoints have the
    # optimizer's variables once, where they are without the wrapper.
    self._wrapped = tf.Module()
    self._wrapped.optimizer = optimizer
    self._compressor = compressors.Compressor(codec, seed)
    self._warned = False
    self._guard = not_finite.Guard(on_not_finite)
    self._waiting = waiting_sums.WaitingSums()
    setattr(optimizer, wrapping.REPLACED, self._sum)

  def __getattr__(self, name: str) -> Any:
    """What is not known here is the wrapped optimizer's, as `momentum`."""
    if name.startswith('__') or '_wrapped' not in self.__dict__:
      raise AttributeError(name)
    if name == 'inner_optimizer':
      return self._wrapped.optimizer
    return getattr(self._wrapped.optimizer, name)

  @property
  def compressor(self) -> compressors.Compressor:
    """What codes the gradients."""
    return self._compressor

  @property
  def on_not_finite(self) -> str:
    """What becomes of a step whose gradient is not finite."""
    return self._guard.action

  def build(self, variables: Sequence[keras.Variable]) -> None:
    """Makes the wrapped optimizer's variables.

    Args:
      variables: trainable ones, in the order of the gradients.

    Raises:
      ValueError: an option that Keras cannot do under this strategy.
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
    """Adds the gradients of all replicas up, coded, and applies the sum.

    Args:
      grads: see `keras.optimizers.Optimizer.apply`.
      trainable_variables: likewise.
    """
    inner = self.inner_optimizer
    if not self.built and trainable_variables is not None:
      with keras.name_scope(self.name):
        self.build(list(trainable_variables))
    self._warn_of_whole_tables(grads, trainable_variables)
    pairs = self._pairs(grads, trainable_variables)
    if not pairs or self.on_not_finite == not_finite.PASS:
      inner.apply(grads, trainable_variables)
      return
    gradients, variables = zip(*pairs, strict=True)
    chosen = known(inner, variables)
    # Before the wrapped optimizer begins: it decays weights before it adds up.
    if inner.gradient_accumulation_steps:
      sums = self._accumulated(gradients, variables, chosen)
    else:
      sums = self._compressor.reduce(
        _as_updated(self.clipped(gradients), variables),
        chosen,
        inner._iterations,
      )
    self._guard.apply(
      self._apply_sums,
      (grads, trainable_variables, sums.values),
      self._found(sums, chosen),
    )

  def _warn_of_whole_tables(
    self,
    gradients: Sequence[Gradient | None],
    variables: Sequence[keras.Variable] | None,
  ) -> None:
    """Logs once which gradients of rows the wrapped optimizer makes dense."""
    inner = self.inner_optimizer
    causes = [name for name in _MAKE_DENSE if getattr(inner, name)]
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
        'Compressed as whole variables: %s. %s makes gradients of some rows '
        '(tf.IndexedSlices) dense, in Keras too. With clipnorm or clipvalue '
        'they stay rows, which travel as they are.',
        *(', '.join(names), ' and '.join(causes)),
      )

  def exclude_from_weight_decay(
    self,
    var_list: Sequence[keras.Variable] | None = None,
    var_names: Sequence[str] | None = None,
  ) -> None:
    """See `keras.optimizers.Optimizer`."""
    self.inner_optimizer.exclude_from_weight_decay(var_list, var_names)

  def update_step(
    self,
    gradient: Gradient,
    variable: keras.Variable,
    learning_rate: tf.Tensor,
  ) -> None:
    """The wrapped optimizer's update of one variable; nothing is coded."""
    self.inner_optimizer.update_step(gradient, variable, learning_rate)

  def set_weights(self, weights: Sequence[np.ndarray]) -> None:
    """Sets the wrapped optimizer's variables."""
    self.inner_optimizer.set_weights(weights)

  def scale_loss(self, loss: tf.Tensor) -> tf.Tensor:
    """The loss that is differentiated, see `keras.optimizers.Optimizer`."""
    return self.inner_optimizer.scale_loss(loss)

  def finalize_variable_values(
    self, var_list: Sequence[keras.Variable]
  ) -> None:
    """Ends a fit, see `keras.optimizers.Optimizer`."""
    self.inner_optimizer.finalize_variable_values(var_list)

  def save_own_variables(self, store: MutableMapping[str, np.ndarray]) -> None:
    """Writes the wrapped optimizer's variables, and what codes remember."""
    kept: dict[str, np.ndarray] = {}
    self.inner_optimizer.save_own_variables(kept)
    for name, array in self._compressor.saved().items():
      kept[_STATE + name] = array
    for name, array in kept.items():
      store[name] = array

  def load_own_variables(self, store: Mapping[str, np.ndarray]) -> None:
    """Reads what `save_own_variables` wrote, or the wrapped optimizer did."""
    arrays = {name: store[name] for name in store.keys()}
    states = {n: a for n, a in arrays.items() if n.startswith(_STATE)}
    own = {n: a for n, a in arrays.items() if n not in states}
    # First, since Keras raises at the first slot of another shape.
    self._compressor.load(
      {name.removeprefix(_STATE): array[...] for name, array in states.items()}
    )
    self.inner_optimizer.load_own_variables(own)

  def get_config(self) -> dict[str, Any]:
    """See `keras.optimizers.Optimizer`; with the wrapped one's."""
    return {
      'name': self.name,
      'optimizer': keras.saving.serialize_keras_object(self.inner_optimizer),
      'codec': self._compressor.codec,
      'seed': self._compressor.seed,
      'on_not_finite': self.on_not_finite,
    }

  @classmethod
  def from_config(
    cls,
    fields: Mapping[str, Any],
    custom_objects: Mapping[str, Any] | None = None,
  ) -> 'Self':
    """Makes one of what `get_config` returned."""
    optimizer = keras.saving.deserialize_keras_object(
      fields['optimizer'], custom_objects=custom_objects
    )
    return cls(**{**fields, 'optimizer': optimizer})

  def unwrapped(self) -> keras.optimizers.Optimizer:
    """The wrapped optimizer, which adds up by itself again."""
    inner = self.inner_optimizer
    delattr(inner, wrapping.REPLACED)
    return inner

  def clipped(self, gradients: Sequence[Gradient]) -> list[Gradient]:
    """A worker's gradients, unscaled and clipped by the wrapped optimizer.

    Args:
      gradients: of floats, of the loss that `scale_loss` returned.

    Returns:
      Those of the same shapes and dtypes.
    """
    return self.inner_optimizer._clip_gradients(self._unscaled(gradients))

  def _unscaled(self, gradients: Sequence[Gradient]) -> Sequence[Gradient]:
    """A worker's gradients of the loss itself, see `scale_loss`."""
    scale = self.inner_optimizer.loss_scale_factor
    return gradients if scale is None else [g / scale for g in gradients]

  def _pairs(
    self,
    grads: Sequence[Gradient | None],
    variables: Sequence[keras.Variable] | None,
  ) -> list[tuple[Gradient, keras.Variable]]:
    """Pairs of those that are added up; [] where Keras refuses to apply."""
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

  def _accumulated(
    self,
    gradients: Sequence[tf.Tensor],
    variables: Sequence[tf.Variable],
    chosen: policy.Variables,
  ) -> reduced_lib.Sums:
    """The sums in the step that applies them; in others what is kept so far."""
    inner = self.inner_optimizer
    steps, kept = (
      inner.gradient_accumulation_steps,
      inner._accumulated_gradients,
    )
    totals = [
      gradient + kept[inner._get_variable_index(variable)]
      for gradient, variable in zip(
        self._unscaled(gradients), variables, strict=True
      )
    ]

    def compress() -> reduced_lib.Sums:
      means = inner._clip_gradients([total / steps for total in totals])
      means = _as_updated(means, variables)
      return self._compressor.reduce(means, chosen, inner._iterations)

    def keep() -> reduced_lib.Sums:
      return reduced_lib.Sums(totals, not_finite.of_each(totals))

    is_last = (inner._iterations + 1) % steps == 0
    return tf.cond(is_last, compress, keep)

  def _found(
    self, sums: reduced_lib.Sums, chosen: policy.Variables
  ) -> not_finite.Found:
    """Whether the gradients of a step are finite."""
    names = [spec.name for spec in chosen.specs]
    return not_finite.Found(
      sums.finite, names, self.inner_optimizer._iterations
    )

  def _apply_sums(
    self,
    grads: Sequence[Gradient | None],
    variables: Sequence[keras.Variable] | None,
    sums: Sequence[Gradient],
  ) -> None:
    """Lets the wrapped optimizer apply gradients whose sums are known."""
    with self._waiting.known(sums):
      self.inner_optimizer.apply(grads, variables)

  def _sum(
    self, grads_and_vars: Iterable[tuple[Gradient, tf.Variable]]
  ) -> Iterable[tuple[Gradient, tf.Variable]]:
    """In place of the wrapped optimizer's own sum over the replicas."""
    gradients, variables = zip(*grads_and_vars, strict=True)
    sums = self._waiting.sums()
    if sums is None:
      chosen = known(self.inner_optimizer, variables)
      reduced = self._compressor.reduce(
        _as_updated(gradients, variables),
        chosen,
        # Of accumulated gradients `iterations` is a part of it.
        self.inner_optimizer._iterations,
      )
      self._guard.report(self._found(reduced, chosen))
      sums = reduced.values
    return list(zip(sums, variables, strict=True))


for _name in _OF_INNER:
  setattr(CompressedOptimizer, _name, _of_inner(_name))


def known(
  optimizer: keras.optimizers.Optimizer, variables: Sequence[tf.Variable]
) -> policy.Variables:
  """Some of the variables that an optimizer was built with.

  Args:
    optimizer: that is built.
    variables: TensorFlow's, as its methods get them.
  """
  indices = tuple(optimizer._get_variable_index(v) for v in variables)
  # Keras takes TensorFlow's variables too, which have no path.
  model = tuple(
    policy.VariableSpec(getattr(v, 'path', v.name), tuple(v.shape))
    for v in optimizer._trainable_variables
  )
  specs = tuple(model[index] for index in indices)
  return policy.Variables(indices, specs, model=model)


def compressed(optimizer: keras.optimizers.Optimizer) -> CompressedOptimizer:
  """The one with codes in an optimizer.

  Args:
    optimizer: a model's, which it is or goes around it.

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
      f'{name}. Put terngrad.keras.CompressedOptimizer around it.'
    )
  return inner


def _as_updated(
  gradients: Sequence[tf.Tensor], variables: Sequence[tf.Variable]
) -> list[tf.Tensor]:
  """Gradients, those of float64 in their variable's dtype.

  The update casts them too.
  """
  return [
    tf.cast(gradient, variable.dtype)
    if not isinstance(gradient, tf.IndexedSlices)
    and gradient.dtype == tf.float64
    else gradient
    for gradient, variable in zip(gradients, variables, strict=True)
  ]
