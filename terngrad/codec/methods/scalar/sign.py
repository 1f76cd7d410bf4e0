"""Signs of the gradients, scaled by the mean magnitude of each variable.

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
  """Creates a code of signs, scaled by the mean magnitude of each variable.

  Args:
    decide: how the workers' signs are combined. 'mean': the mean of the scaled
      signs; workers receive the signs of all workers. 'majority': the sign that
      most workers have, 0 on a tie, times the mean of their scales; sums
      of signs and of scales are enough.

  Returns:
    A `coded.Code` for 'mean', a `method.Method` for 'majority'.

  Raises:
    ValueError: `decide` is neither.
  """
  if decide == 'mean':
    return Sign()
  if decide == 'majority':
    # Always the same object: variables of one object are encoded together.
    return _MAJORITY
  raise ValueError(
    f'decide: expected one of majority, mean, received {decide!r}.'
  )


class Sign(by_variable.ByVariable):
  """A float32 mean magnitude, and the signs, 32 per word."""

  name = 'sign'
  traits = by_variable.DETERMINISTIC._replace(dense=True)
  kernels = grouped_ops.GroupedCode(
    grouped_ops.SIGNS, levels=1, base=2, places=32
  )

  def num_words(self, num_elements: int) -> int:
    """Returns one word for the scale, and the number of words of the signs."""
    return 1 + BITS.num_words(num_elements) if num_elements else 0

  def encode_variable(
    self, values: tf.Tensor, draws: Callable[[], tf.Tensor]
  ) -> tf.Tensor:
    """Packs the mean magnitude and the signs."""
    scale = tf.bitcast(statistics.mean_magnitude(values), tf.int32)
    return tf.concat([scale[tf.newaxis], _sign_words(values)], axis=0)

  def planes(self, words: tf.Tensor, num_elements: int) -> tf.Tensor:
    """Decodes to signs times the scale, float32 [n]."""
    scale = tf.bitcast(words[0], tf.float32)
    negative = BITS.unpack_flat(words[1:], num_elements) < 0
    return tf.where(negative, -scale, scale)

  def check(
    self, words: np.ndarray, num_elements: int
  ) -> tuple[wire.Packing, np.ndarray, int]:
    """Rejects a scale that is negative or not finite; returns the signs."""
    scales = words[:1].view(np.float32)
    validation.check_scales(self.name, scales, 'a finite scale >= 0')
    return BITS, words[1:], num_elements


class _SignOnKernels(grouped.GroupedOnKernels, Sign, twin_of=Sign):
  """`Sign` with native kernels."""


class Majority(method.Method):
  """The sign that most workers have, times the mean of their scales."""

  name = 'sign by majority'
  traits = by_variable.DETERMINISTIC._replace(dense=True, averages=False)
  scope = contract.VARIABLE
  agrees = False
  estimates = True

  def messages(self, shapes: method.Shapes) -> method.Rounds:
    """Declares one round with a sum of signs and a sum of scales."""
    size = sum(method.sizes_of(shapes))
    return ((method.code_sum(BITS, size, 1), method.float_sum(len(shapes))),)

  def send(
    self,
    number: int,
    gradients: method.Tensors,
    states: method.Tensors,
    received: method.ReceivedRounds,
    context: method.Context,
  ) -> tuple[list[tf.Tensor], method.Tensors]:
    """Sends the signs of all elements and the scale of each variable."""
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
    received: method.ReceivedRounds,
    states: method.Tensors,
    context: method.Context,
  ) -> tuple[list[tf.Tensor], method.Tensors]:
    """Multiplies the majority's signs by the mean of the scales."""
    (messages,) = self.messages(context.shapes)
    pairs = zip(received[0], messages, strict=True)
    votes, scales = (one.sum(message) for one, message in pairs)
    means = _scaled(tf.sign(votes), scales * context.scale, context)
    return method.shaped(means, context), states

  def estimate(
    self, words: Sequence[tf.Tensor], context: method.Context
  ) -> list[tf.Tensor]:
    """Decodes the signs and scales of this worker."""
    signs = wire.join(BITS.unpack(words[0]))
    return _scaled(signs, tf.bitcast(words[1], tf.float32), context)


def _sign_words(flat: tf.Tensor) -> tf.Tensor:
  # Compared as integers, because compiled code may flush subnormals to zero.
  bits = tf.bitcast(flat, tf.int32)
  return BITS.pack_flat(tf.where((bits < 0) & (bits != tf.int32.min), -1, 1))


def _scaled(
  signs: tf.Tensor, scales: tf.Tensor, context: method.Context
) -> list[tf.Tensor]:
  """Multiplies int32 signs by each variable's scale, list of v float32."""
  signs = tf.split(signs[: sum(context.sizes)], context.sizes)
  return [tf.cast(part, tf.float32) * scales[i] for i, part in enumerate(signs)]


_MAJORITY = Majority()
