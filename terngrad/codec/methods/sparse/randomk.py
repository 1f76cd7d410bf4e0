"""Some elements of each variable, drawn anew each step, the same for all.

Stich et al., Sparsified SGD with Memory, NeurIPS 2018,
https://arxiv.org/abs/1809.07599, with error feedback; Wangni et al., Gradient
Sparsification for Communication-Efficient Distributed Optimization, NeurIPS
2018, https://arxiv.org/abs/1710.09854, for the scale that leaves no bias. All
workers draw the same indices, which so need not travel, and values can be added
on their way. Departure: a variable is cut into k stretches, equally long but
for one element, and each gives one of its elements, where the papers draw k of
all. Every element is drawn as often and the mean error is the same; k numbers
are drawn in place of n, and nothing is sorted.
"""

from collections.abc import Sequence

import tensorflow as tf

from terngrad.codec import method
from terngrad.codec.methods import by_variable
from terngrad.codec.methods.sparse import topk
from terngrad.codec.stages import random_bits


class RandomK(method.Method):
  """A part of the elements of each variable, as float32."""

  agrees = False
  estimates = True
  draws_in_decode = True
  compiled = False  # XLA gathers and scatters element by element

  def __init__(self, ratio: float = 0.01, unbiased: int = 0) -> None:
    """Makes the code.

    Args:
      ratio: of a variable's n elements k = max(1, ceil(ratio n)) are sent.
      unbiased: 0: values as they are, for error feedback; 1: times the length
        of their stretch, n / k in the mean, to be used without it.

    Raises:
      ValueError: an option is out of its range.
    """
    topk.check_ratio('randomk', ratio)
    if unbiased not in (0, 1):
      raise ValueError(
        f'unbiased: expected 0 or 1, received {unbiased}. Use 0 with error '
        'feedback and 1 without.'
      )
    self.ratio, self.unbiased = ratio, unbiased
    self.name = f'randomk({ratio:g}{", unbiased" if unbiased else ""})'
    self.traits = by_variable.FIXED._replace(
      unbiased=bool(unbiased), randomness='shared'
    )

  def counts(self, sizes: Sequence[int]) -> list[int]:
    """How many elements of each variable are sent."""
    return [topk.count(self.ratio, size) for size in sizes]

  def messages(self, shapes: method.Shapes) -> method.Rounds:
    """See `method.Method`."""
    counts = self.counts(method.sizes_of(shapes))
    return ((method.float_sum(sum(counts)),),)

  def drawn(self, context: method.Context) -> list[tuple[tf.Tensor, tf.Tensor]]:
    """For each variable (indices int32 [k], lengths of their stretches)."""
    found = []
    for size, number, start in zip(
      context.sizes, self.counts(context.sizes), context.starts, strict=True
    ):
      bits = random_bits.range_bits(context.common_key, number, start)
      borders = tf.range(number + 1, dtype=tf.int64) * size // max(1, number)
      lengths = borders[1:] - borders[:-1]
      # bits / 2**32 of a stretch
      places = tf.bitwise.right_shift(tf.cast(bits, tf.int64) * lengths, 32)
      found.append((tf.cast(borders[:-1] + places, tf.int32), lengths))
    return found

  def send(
    self,
    number: int,
    gradients: method.Tensors,
    states: method.Tensors,
    received: method.Arrived,
    context: method.Context,
  ) -> tuple[list[tf.Tensor], method.Tensors]:
    """See `method.Method`."""
    each, drawn = method.each(gradients, context), self.drawn(context)
    values = [tf.gather(v, i) for v, (i, _) in zip(each, drawn, strict=True)]
    return [tf.bitcast(tf.concat(values, axis=0), tf.int32)], states

  def decode(
    self,
    received: method.Arrived,
    states: method.Tensors,
    context: method.Context,
  ) -> tuple[list[tf.Tensor], method.Tensors]:
    """See `method.Method`."""
    message = self.messages(context.shapes)[0][0]
    means = received[0][0].sum(message)[: message.num_elements] * context.scale
    return method.shaped(self.spread(means, context), context), states

  def estimate(
    self, words: Sequence[tf.Tensor], context: method.Context
  ) -> list[tf.Tensor]:
    """See `method.Method`."""
    return self.spread(tf.bitcast(words[0], tf.float32), context)

  def spread(
    self, values: tf.Tensor, context: method.Context
  ) -> list[tf.Tensor]:
    """Sent values at their indices, a list of float32 [n]."""
    parts = tf.split(values, self.counts(context.sizes))
    found = []
    for size, sent, (indices, lengths) in zip(
      context.sizes, parts, self.drawn(context), strict=True
    ):
      if self.unbiased:
        sent = sent * tf.cast(lengths, tf.float32)
      where, zeros = indices[:, tf.newaxis], tf.zeros([size])
      found.append(tf.tensor_scatter_nd_update(zeros, where, sent))
    return found
