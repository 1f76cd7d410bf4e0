"""Conversion of gradients to float32, and tests for finite values."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from terngrad.codec import policy
from terngrad.codec.stages import tracing
from terngrad.reduce import gradients as gradients_lib

_FLOATS = (tf.float32, tf.float16, tf.bfloat16)


def finite_variables(
  codec: gradients_lib.GradientCodec, probe: tf.Tensor
) -> tf.Tensor:
  """Tests for each variable whether its values in a probe are finite.

  Returns:
    bool [variables]; on the host of a GPU, where branches are taken.
  """
  _, rows = np.unique(codec.probed_variables(), return_inverse=True)
  finite = tf.math.is_finite(probe)
  with tracing.host():
    if len(rows) == codec.num_variables:
      return tf.identity(finite)
    wrong = tf.cast(~finite, tf.int32)
    return tf.math.unsorted_segment_sum(wrong, rows, codec.num_variables) < 1


def all_flags(flags: tf.Tensor) -> tf.Tensor:
  """Returns whether all flags of variables are True, bool []."""
  with tracing.beside(flags):
    return tf.reduce_all(flags)


def join_flags(flags: Sequence[tf.Tensor]) -> tf.Tensor:
  """Joins flags of variables, bool [] each, to bool [variables]."""
  if not flags:
    return tf.zeros([0], tf.bool)
  with tracing.beside(flags[0]):
    return tf.stack(flags)


def mask_not_finite(
  finite: tf.Tensor, means: list[tf.Tensor]
) -> list[tf.Tensor]:
  """Sets means to NaN for variables whose gradients are not finite."""

  def masked() -> list[tf.Tensor]:
    pairs = zip(tf.unstack(finite), means, strict=True)
    return [tf.where(known, m, float('nan')) for known, m in pairs]

  # The branch avoids copies in the usual case that all are finite.
  return tf.nest.flatten(
    tf.cond(all_flags(finite), lambda: list(means), masked)
  )


def cast(gradient: tf.Tensor, spec: policy.VariableSpec) -> tf.Tensor:
  """Casts a gradient to float32, with the shape of its variable.

  Raises:
    ValueError: the dtype is not float32, float16 or bfloat16.
    ValueError, tf.errors.InvalidArgumentError: as `set_shape`.
  """
  if gradient.dtype not in _FLOATS:
    raise ValueError(
      f'{spec.name}: expected a gradient of float32, float16 or bfloat16, '
      f'received {gradient.dtype.name}, which codecs would round. Use '
      "keras.config.set_floatx('float32')."
    )
  return set_shape(tf.cast(gradient, tf.float32), spec)


def set_shape(gradient: tf.Tensor, spec: policy.VariableSpec) -> tf.Tensor:
  """Sets the static shape of a gradient to that of its variable.

  Raises:
    ValueError: it has another shape.
    tf.errors.InvalidArgumentError: a shape that is unknown while the step is
      traced turns out to be another one.
  """
  if not gradient.shape.is_compatible_with(spec.shape):
    raise ValueError(
      f'{spec.name}: expected a gradient of shape {list(spec.shape)}, that of '
      f'its variable, received {gradient.shape.as_list()}. Pass gradients and '
      'variables in the same order.'
    )
  # Checked in a step only if the shape is unknown: it costs an operation.
  if gradient.shape.is_fully_defined():
    return gradient
  return tf.ensure_shape(gradient, spec.shape)
