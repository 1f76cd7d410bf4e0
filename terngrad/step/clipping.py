"""Clips gradients by their global norm."""

from collections.abc import Sequence

import tensorflow as tf

from terngrad.codec.stages import statistics


def clip_by_global_norm(
  gradients: Sequence[tf.Tensor], clip_norm: float
) -> list[tf.Tensor]:
  """Scales gradients so that their global L2 norm is at most `clip_norm`.

  Args:
    gradients: float32.
    clip_norm: in the units of the gradients, > 0.

  Returns:
    float32; NaN if an element was not finite.
  """
  norms = [statistics.norm(gradient) for gradient in gradients]
  factor = clip_factor(norms, clip_norm)
  return [gradient * factor for gradient in gradients]


def clip_factor(norms: list[tf.Tensor], clip_norm: float) -> tf.Tensor:
  """Computes the factor that limits the global L2 norm to `clip_norm`.

  The sum of squares is float64: in float32 it loses its last terms in nets of
  millions of parameters.

  Args:
    norms: float32 [], the L2 norm of each gradient.
    clip_norm: in the units of the gradients, > 0.

  Returns:
    float32 [], at most 1; NaN if a norm is.
  """
  squares = tf.square(tf.cast(tf.stack(norms), tf.float64))
  total = tf.cast(tf.sqrt(tf.reduce_sum(squares)), tf.float32)
  return clip_norm / tf.maximum(total, clip_norm)
