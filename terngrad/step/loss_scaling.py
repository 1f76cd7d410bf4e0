"""Dynamic loss scaling, for gradients that float16 would round to zero.

The loss is multiplied by a power of two before it is differentiated, and the
float32 gradients are divided by it. The scale is part of every replica: all
halve it at the same step, because all look at the same averaged gradient.

References:
  Micikevicius et al., Mixed Precision Training,
  https://arxiv.org/abs/1710.03740, section 3.2.
"""

from collections.abc import Sequence

import tensorflow as tf

# The scale, and the steps since it last changed: floats both, since GPUs keep
# no integer variables. The numbers are those of Keras's LossScaleOptimizer.
START = (2.0**15, 0.0)
NAMES = ('loss_scale', 'steps_at_loss_scale')
_GROW_AFTER = 2000
_LOWEST, _HIGHEST = 1.0, 2.0**24


def all_finite(gradients: Sequence[tf.Tensor]) -> tf.Tensor:
  """Whether all elements of a list of tensors are finite, bool []."""
  return tf.reduce_all(
    [tf.reduce_all(tf.math.is_finite(gradient)) for gradient in gradients]
  )


def follow(scaling: Sequence[tf.Variable], finite: tf.Tensor) -> None:
  """Halves the scale after a step that overflowed, doubles it after many good.

  Args:
    scaling: the variables of `NAMES`.
    finite: bool [], whether the step's gradients were finite.
  """
  scale, good = scaling
  grows = good + 1.0 >= _GROW_AFTER
  raised = tf.where(grows, tf.minimum(scale * 2.0, _HIGHEST), scale)
  lowered = tf.maximum(scale / 2.0, _LOWEST)
  count = tf.where(grows, 0.0, good + 1.0)
  scale.assign(tf.where(finite, raised, lowered))
  good.assign(tf.where(finite, count, 0.0))


def can_fall(scaling: Sequence[tf.Variable]) -> bool:
  """False where there is no scale, or it has fallen as far as it goes."""
  return bool(scaling) and float(scaling[0]) > _LOWEST
