"""Dynamic loss scaling, for gradients that float16 would round to zero.

The loss is multiplied by a power of two before the backward pass, and the
float32 gradients are divided by it. Every replica has the scale. All replicas
halve it at the same step, because all check the same mean gradient.

References:
  Micikevicius et al., Mixed Precision Training,
  https://arxiv.org/abs/1710.03740, section 3.2.
"""

from collections.abc import Sequence

import tensorflow as tf

# Initial values of the scale and of the steps since it last changed. Both are
# floats, since TensorFlow has no int32 variables on GPUs. The constants are
# those of Keras's LossScaleOptimizer.
START = (2.0**15, 0.0)
NAMES = ('loss_scale', 'steps_at_loss_scale')
_GROW_AFTER = 2000
_LOWEST, _HIGHEST = 1.0, 2.0**24


def all_finite(gradients: Sequence[tf.Tensor]) -> tf.Tensor:
  """Checks whether all elements of the tensors are finite, bool []."""
  return tf.reduce_all(
    [tf.reduce_all(tf.math.is_finite(gradient)) for gradient in gradients]
  )


def update_scale(scaling: Sequence[tf.Variable], finite: tf.Tensor) -> None:
  """Halves the scale after an overflow; doubles it after 2000 finite steps.

  The scale stays in [1, 2**24].

  Args:
    scaling: the variables named in `NAMES`.
    finite: bool [], whether the gradients of the step were finite.
  """
  scale, num_finite = scaling
  grows = num_finite + 1.0 >= _GROW_AFTER
  raised = tf.where(grows, tf.minimum(scale * 2.0, _HIGHEST), scale)
  lowered = tf.maximum(scale / 2.0, _LOWEST)
  count = tf.where(grows, 0.0, num_finite + 1.0)
  scale.assign(tf.where(finite, raised, lowered))
  num_finite.assign(tf.where(finite, count, 0.0))


def can_fall(scaling: Sequence[tf.Variable]) -> bool:
  """Checks whether there is a loss scale above its minimum of 1."""
  return bool(scaling) and float(scaling[0]) > _LOWEST
