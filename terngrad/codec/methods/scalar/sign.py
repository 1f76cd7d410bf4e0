"""The signs of a gradient, scaled by each variable's mean magnitude.

Bernstein et al., signSGD: Compressed Optimisation for Non-Convex Problems, ICML
2018, https://arxiv.org/abs/1802.04434, and signSGD with Majority Vote, ICLR
2019, https://arxiv.org/abs/1810.05291; for the scale Karimireddy et al., Error
Feedback Fixes SignSGD, ICML 2019, https://arxiv.org/abs/1901.09847. Departures:
the majority's signs are scaled too, by the mean of the workers' scales; and
zeros are sent as +1.
"""

from collections.abc import Callable
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from terngrad.codec import method
from terngrad.codec.methods import by_variable
from terngrad.codec.methods import grouped
from terngrad.codec.methods import validation
from terngrad.codec.stages import contract
from terngrad.codec.stages import packing
from terngrad.codec.stages import statistics
from terngrad.codec.stages import wire
from terngrad.native import grouped_ops

BITS = packing.one_bit()


def sign(decide: str = 'mean') -> method.Method:
  """Signs and a scale for each variable, the mean of its magnitudes.

  Args:
    decide: 'mean': the gradient is the mean of the workers' scaled signs; all
      receive the signs of all. 'majority': it is the sign that most workers
      have, 0 on a tie, times their mean scale; sums of signs are enough.

  Returns:
    A `coded.Code`, or for the majority a `method.Method`.

  Raises:
    ValueError: `decide` is neither.
  """
  if decide == 'mean':
    return Sign()
  if decide == 'majority':
    # One method, so that all variables of it are coded together.
    return _MAJORITY
  raise ValueError(
    f'decide: expected one of majority, mean, received {decide!r}.'
  )


class Sign(by_variable.ByVariable):
  """The mean magnitude, a float32, and the signs, 32 a word."""

  name = 'sign'
  kernels = grouped_ops.Code(grouped_ops.SIGNS, levels=1, base=2, places=32)

  def num_words(self, num_elements: int) -> int:
    """See `wire.CompositePacking`."""
    return 1 + BITS.num_words(num_elements) if num_elements else 0

  def encode_variable(
    self, values: tf.Tensor, draws: Callable[[], tf.Tensor]
  ) -> tf.Tensor:
    """See `by_variable.ByVariable`."""
    scale = tf.bitcast(statistics.mean_magnitude(values), tf.int32)
    return tf.concat([scale[tf.newaxis], _sign_words(values)], axis=0)

  def planes(self, words: tf.Tensor, num_elements: int) -> tf.Tensor:
    """See `wire.CompositePacking`."""
    scale = tf.bitcast(words[0], tf.float32)
    negative = BITS.unpack_flat(words[1:], num_elements) < 0
    return tf.where(negative, -scale, scale)

  def check(
    self, words: np.ndarray, num_elements: int
  ) -> tuple[wire.Packing, np.ndarray, int]:
    """Refuses a scale that is negative or not finite."""
    scales = words[:1].view(np.float32)
    validation.check_scales(self.name, scales, 'a finite scale >= 0')
    return BITS, words[1:], num_elements


class _OnKernels(grouped.OnKernels, Sign, twin_of=Sign):
  """With kernels."""


class Majority(method.Method):
  """The sign that most workers have, times their mean scale."""

  name = 'sign by majority'
  traits = by_variable.FIXED
  scope = contract.VARIABLE
  agrees = False
  estimates = True

  def messages(self, shapes: method.Shapes) -> method.Rounds:
    """See `method.Method`."""
    size = sum(method.sizes_of(shapes))
    return ((method.code_sum(BITS, size, 1), method.float_sum(len(shapes))),)

  def send(
    self,
    number: int,
    gradients: method.Tensors,
    states: method.Tensors,
    received: method.Arrived,
    context: method.Context,
  ) -> tuple[list[tf.Tensor], method.Tensors]:
    """See `method.Method`."""
    scales = [
      statistics.mean_magnitude(values) if n else tf.constant(0.0)
      for values, n in zip(
        method.each(gradients, context), context.sizes, strict=True
      )
    ]
    scale_words = tf.bitcast(tf.stack(scales), tf.int32)
    return [_sign_words(method.flat(gradients)), scale_words], states

  def decode(
    self,
    received: method.Arrived,
    states: method.Tensors,
    context: method.Context,
  ) -> tuple[list[tf.Tensor], method.Tensors]:
    """See `method.Method`."""
    (messages,) = self.messages(context.shapes)
    pairs = zip(received[0], messages, strict=True)
    votes, scales = (arrived.sum(message) for arrived, message in pairs)
    means = _scaled(tf.sign(votes), scales * context.scale, context)
    return method.shaped(means, context), states

  def estimate(
    self, words: Sequence[tf.Tensor], context: method.Context
  ) -> list[tf.Tensor]:
    """See `method.Method`."""
    signs = wire.join(BITS.unpack(words[0]))
    return _scaled(signs, tf.bitcast(words[1], tf.float32), context)


def _sign_words(flat: tf.Tensor) -> tf.Tensor:
  # Compared as integers: compiled code may take subnormals for zeros.
  bits = tf.bitcast(flat, tf.int32)
  return BITS.pack_flat(tf.where((bits < 0) & (bits != tf.int32.min), -1, 1))


def _scaled(
  signs: tf.Tensor, scales: tf.Tensor, context: method.Context
) -> list[tf.Tensor]:
  """List of v float32: int32 signs of all elements times each one's scale."""
  signs = tf.split(signs[: sum(context.sizes)], context.sizes)
  return [tf.cast(own, tf.float32) * scales[i] for i, own in enumerate(signs)]


_MAJORITY = Majority()
