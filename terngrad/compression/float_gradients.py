"""Conversion of gradients to float32, and tests for finite values."""

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import ops
from tensorflow.python.ops import control_flow_util

from terngrad.codec import policy
from terngrad.reduce import gradients as gradients_lib

_FLOATS = (tf.float32, tf.float16, tf.bfloat16)


def finite_variables(
  codec: gradients_lib.GradientCodec, probe: tf.Tensor
) -> tf.Tensor:
  """Tests for each variable whether its values in a probe are finite.

  Returns:
    bool [variables].
  """
  _, rows = np.unique(codec.probed_variables(), return_inverse=True)
  not_finite = tf.cast(~tf.math.is_finite(probe), tf.int32)
  return tf.math.unsorted_segment_sum(not_finite, rows, codec.num_variables) < 1


def mask_not_finite(
  finite: tf.Tensor, means: list[tf.Tensor]
) -> list[tf.Tensor]:
  """Sets means to NaN for variables whose gradients are not finite."""

  def masked() -> list[tf.Tensor]:
    pairs = zip(tf.unstack(finite), means, strict=True)
    return [tf.where(known, m, float('nan')) for known, m in pairs]

  # The branch avoids copies in the usual case that all are finite.
  return tf.nest.flatten(
    tf.cond(tf.reduce_all(finite), lambda: list(means), masked)
  )


def cast(gradient: tf.Tensor, spec: policy.VariableSpec) -> tf.Tensor:
  """Casts a gradient to float32, with the shape of its variable.

  Raises:
    ValueError: the dtype is not float32, float16 or bfloat16.
    tf.errors.InvalidArgumentError: the gradient has another shape.
  """
  if gradient.dtype not in _FLOATS:
    raise ValueError(
      f'{spec.name}: expected a gradient of float32, float16 or bfloat16, '
      f'received {gradient.dtype.name}, which codecs would round. Use '
      "keras.config.set_floatx('float32')."
    )
  return set_shape(tf.cast(gradient, tf.float32), spec)


def set_shape(gradient: tf.Tensor, spec: policy.VariableSpec) -> tf.Tensor:
  """Sets the static shape of a gradient."""
  # Checked only if the shape is unknown: the check costs an operation per step.
  if gradient.shape.is_fully_defined():
    return gradient
  return tf.ensure_shape(gradient, spec.shape)


def is_compiled_by_xla() -> bool:
  """Returns whether XLA compiles the function that is being traced."""
  return control_flow_util.GraphOrParentsInXlaContext(ops.get_default_graph())
