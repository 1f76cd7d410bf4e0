"""Updates the parameters, optimizer slots and moving averages of a replica."""

import dataclasses

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


@dataclasses.dataclass(frozen=True, eq=False)
class Update:
  """The compiled update of a replica.

  The update is one XLA program, so that each element of a parameter, its slots
  and its average is read once. Decoding is another program, since it depends on
  how the workers are spread over devices. In one program XLA's choice of which
  product and sum to fuse into one rounding would depend on that too, and
  layouts would differ in the last bit. `fused_updates` has kernels that decode
  and update at once.

  Decoupled weight decay subtracts learning rate * gradient of the L2 terms, for
  the parameters before the step. It is neither clipped nor seen by the
  optimizer.

  Attributes:
    decoupled_decay: the L2 terms of the replica's parameters; None for none.
  """

  replica: replicas.Replica
  optimizer: optimizers.Optimizer
  decoupled_decay: weight_decay.WeightDecay | None

  @tracing.compiled
  def __call__(
    self,
    means: list[tf.Tensor],
    statistics: tf.Tensor | None,
    numbers: Numbers,
  ) -> None:
    """Updates the replica.

    Args:
      means: float32 mean gradients, one for each parameter.
      statistics: float32 [n], the concatenated new moving statistics; None if
        the replica has none.
      numbers: (step, learning_rate, averaging_decay).
    """
    scaling = self.replica.scaling
    if not scaling:
      self._apply(means, statistics, numbers)
      return
    finite = loss_scaling.all_finite(means)
    tf.cond(
      finite, lambda: self._apply(means, statistics, numbers), lambda: None
    )
    loss_scaling.update_scale(scaling, finite)

  def _apply(
    self,
    means: list[tf.Tensor],
    statistics: tf.Tensor | None,
    numbers: Numbers,
  ) -> None:
    replica, optimizer = self.replica, self.optimizer
    decoupled_decay = self.decoupled_decay
    step, learning_rate, averaging_decay = numbers
    if optimizer.clip_norm:
      means = clipping.clip_by_global_norm(means, optimizer.clip_norm)
    if decoupled_decay:
      parameters = [tf.convert_to_tensor(v) for v in replica.trainable]
      terms = decoupled_decay.gradients(parameters)
      for variable, decay in zip(replica.trainable, terms, strict=True):
        if decay is not None:
          variable.assign_sub(learning_rate * decay)
    for variable, slots, mean in zip(
      replica.trainable, replica.slots, means, strict=True
    ):
      optimizer.apply(variable, slots, mean, learning_rate, step)
    if statistics is not None:
      shapes = [variable.shape for variable in replica.statistics]
      moments = metadata.split(statistics, shapes)
      for variable, value in zip(replica.statistics, moments, strict=True):
        variable.assign(value)
    values = (*replica.trainable, *replica.statistics)
    # The averages of frozen parameters come last and do not change. Benchmarks
    # may have no averages.
    for average, value in zip(replica.averages, values, strict=False):
      decayed = averaging_decay * average
      average.assign(decayed + (1.0 - averaging_decay) * value)
