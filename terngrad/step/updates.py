"""Updates the parameters, optimizer slots and moving averages of a replica."""

import dataclasses
import functools
from collections.abc import Callable
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from terngrad.codec.stages import tracing
from terngrad.reduce import metadata
from terngrad.reduce import weight_decay
from terngrad.step import clipping
from terngrad.step import loss_scaling
from terngrad.step import optimizers
from terngrad.step import replicas

# (step int64 [], learning_rate float32 [], averaging_decay float32 []).
Numbers = tuple[tf.Tensor, tf.Tensor, tf.Tensor]
# Programs that a process keeps.
_MOST_PROGRAMS = 64


class _Updated(NamedTuple):
  """The variables of a replica that an update changes, as `Replica` has them.

  `averages` has none of frozen parameters, which do not change.
  """

  trainable: Sequence[tf.Variable]
  statistics: Sequence[tf.Variable]
  slots: Sequence[dict[str, tf.Variable]]
  averages: Sequence[tf.Variable]


_Program = Callable[
  [_Updated, Sequence[tf.Tensor], tf.Tensor | None, Numbers], None
]


@dataclasses.dataclass(frozen=True, eq=False)
class Update:
  """The compiled update of a replica.

  The update is one XLA program, so that each element of a parameter, its slots
  and its average is read once. Decoding is another program, since it depends on
  how the workers are spread over devices. In one program XLA's choice of which
  product and sum to fuse into one rounding would depend on that too, and
  layouts would differ in the last bit. `fused_updates` has kernels that decode
  and update at once.

  Replicas and models of a process with equal rules, L2 terms and shapes share
  the program: XLA takes a quarter of a second to compile it for a small model.

  Decoupled weight decay subtracts learning rate * gradient of the L2 terms, for
  the parameters before the step. It is neither clipped nor seen by the
  optimizer.

  Attributes:
    decoupled_decay: the L2 terms of the replica's parameters; None for none.
  """

  replica: replicas.Replica
  optimizer: optimizers.Optimizer
  decoupled_decay: weight_decay.WeightDecay | None

  def __call__(
    self,
    means: Sequence[tf.Tensor],
    statistics: tf.Tensor | None,
    numbers: Numbers,
    finite: tf.Tensor | None = None,
  ) -> None:
    """Updates the replica.

    Args:
      means: float32 mean gradients, one for each parameter.
      statistics: float32 [n], the concatenated new moving statistics; None if
        the replica has none.
      numbers: (step, learning_rate, averaging_decay).
      finite: bool [], with loss scaling: whether the gradients of all workers
        were finite. Many codes make finite means of others. None without.
    """
    replica = self.replica
    changing = len(replica.trainable) + len(replica.statistics)
    updated = _Updated(
      replica.trainable,
      replica.statistics,
      replica.slots,
      replica.averages[:changing],
    )
    shapes = tuple(tuple(v.shape) for v in tf.nest.flatten(updated))
    program = _program(self.optimizer, self.decoupled_decay, shapes)
    apply = functools.partial(program, updated, means, statistics, numbers)
    if finite is None:
      apply()
      return
    is_applied = tf.logical_and(finite, loss_scaling.all_finite(means))
    # Not in the program: TensorFlow would keep in mind the variables that a
    # branch names, and refuse the program to other models when they are gone.
    tf.cond(is_applied, apply, lambda: None)
    loss_scaling.update_scale(replica.scaling, is_applied)


@functools.lru_cache(_MOST_PROGRAMS)
def _program(
  optimizer: optimizers.Optimizer,
  decoupled_decay: weight_decay.WeightDecay | None,
  shapes: tuple[tuple[int, ...], ...],
) -> _Program:
  """Makes a program; XLA compiles it at its first call.

  Args:
    optimizer: the rule.
    decoupled_decay: L2 terms, or None.
    shapes: of the variables. TensorFlow warns of a function that it traces for
      many shapes.
  """
  del shapes

  @tracing.compiled
  def update(
    updated: _Updated,
    means: Sequence[tf.Tensor],
    statistics: tf.Tensor | None,
    numbers: Numbers,
  ) -> None:
    _apply(optimizer, decoupled_decay, updated, means, statistics, numbers)

  return update


def _apply(
  optimizer: optimizers.Optimizer,
  decoupled_decay: weight_decay.WeightDecay | None,
  updated: _Updated,
  means: Sequence[tf.Tensor],
  statistics: tf.Tensor | None,
  numbers: Numbers,
) -> None:
  """Changes the variables; arguments as in `Update`."""
  step, learning_rate, averaging_decay = numbers
  if optimizer.clip_norm:
    means = clipping.clip_by_global_norm(means, optimizer.clip_norm)
  if decoupled_decay:
    parameters = [tf.convert_to_tensor(v) for v in updated.trainable]
    terms = decoupled_decay.gradients(parameters)
    for variable, decay in zip(updated.trainable, terms, strict=True):
      if decay is not None:
        variable.assign_sub(learning_rate * decay)
  for variable, slots, mean in zip(
    updated.trainable, updated.slots, means, strict=True
  ):
    optimizer.apply(variable, slots, mean, learning_rate, step)
  if statistics is not None:
    shapes = [variable.shape for variable in updated.statistics]
    moments = metadata.split(statistics, shapes)
    for variable, value in zip(updated.statistics, moments, strict=True):
      variable.assign(value)
  values = (*updated.trainable, *updated.statistics)
  # Benchmarks may have no averages.
  for average, value in zip(updated.averages, values, strict=False):
    decayed = averaging_decay * average
    average.assign(decayed + (1.0 - averaging_decay) * value)
