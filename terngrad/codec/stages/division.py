"""Quotients with the same bits on every device.

XLA compiles a float32 division for GPUs to an instruction with an error of two
units in the last place (PTX `div.full`). A division in float64 is no way out:
LLVM narrows it to float32 again. So the quotient is computed with integers.
"""

import tensorflow as tf

_FRACTION_BITS = 23
_LEADING_BIT = 1 << _FRACTION_BITS
# 2**47 / significand has 24 bits, and 253 is the sum of the biases of both
# exponents and of the bit that this quotient has less than 2**24.
_DIVIDEND = 1 << (2 * _FRACTION_BITS + 1)
_BIASES = 253


def divide_power_of_two(exponent: int, values: tf.Tensor) -> tf.Tensor:
  """Computes 2**exponent / values, correctly rounded.

  Args:
    exponent: of the dividend.
    values: float32 >= 0, any shape. The quotients must be normal numbers.

  Returns:
    float32, shape of `values`; 0 where a value is 0, subnormal or not finite.
  """
  bits = tf.bitcast(values, tf.int32)
  power = tf.bitwise.right_shift(bits, _FRACTION_BITS)
  significand = tf.bitwise.bitwise_and(bits, _LEADING_BIT - 1) + _LEADING_BIT
  significand = tf.cast(significand, tf.int64)
  quotient = _DIVIDEND // significand
  rest = _DIVIDEND - quotient * significand
  # There are no ties: 2**48 has no odd factor.
  quotient += tf.cast(2 * rest > significand, tf.int64)
  # A quotient of 2**24 carries into the exponent.
  fraction = tf.cast(quotient - _LEADING_BIT, tf.int32)
  raised = tf.bitwise.left_shift(exponent + _BIASES - power, _FRACTION_BITS)
  result = tf.bitcast(raised + fraction, tf.float32)
  return tf.where((power > 0) & (power < 255), result, 0.0)
