"""The clip by the norm of all gradients together, before an update."""

import tensorflow as tf

from terngrad.codec.stages import statistics


def clip_by_global_norm(
  gradients: list[tf.Tensor], clip_norm: float
) -> list[tf.Tensor]:
  """Scales gradients down where their norm, over all together, is larger.

  Args:
    gradients: list of float32.
    clip_norm: > 0.

  Returns:
    List of float32; NaN where an element was not finite.
  """
  norms = [statistics.norm(gradient) for gradient in gradients]
  factor = clip_factor(norms, clip_norm)
  return [gradient * factor for gradient in gradients]


def clip_factor(norms: list[tf.Tensor], clip_norm: float) -> tf.Tensor:
  """What brings gradients to a norm, over all together, that is not larger.

  Sums run in float64: a float32 sum of squares loses its last terms in nets of
  millions of parameters.

  Args:
    norms: list of float32 [], of each gradient.
    clip_norm: > 0.

  Returns:
    float32 [], at most 1; NaN where a norm is.
  """
  squares = tf.square(tf.cast(tf.stack(norms), tf.float64))
  total = tf.cast(tf.sqrt(tf.reduce_sum(squares)), tf.float32)
  return clip_norm / tf.maximum(total, clip_norm)
