"""Random-k sparsification, with the same indices on all workers.

Stich et al., Sparsified SGD with Memory, NeurIPS 2018,
https://arxiv.org/abs/1809.07599, with error feedback; Wangni et al., Gradient
Sparsification for Communication-Efficient Distributed Optimization, NeurIPS
2018, https://arxiv.org/abs/1710.09854, for the scale that removes the bias. In
each step all workers draw the same new indices. These are not sent, and values
can be added during the exchange. Departure: a variable is cut into k segments,
whose lengths differ by at most one, and one element of each is drawn; the
papers draw k of all elements. The probability of each element and the mean
error are the same, but k numbers are drawn instead of n, without a sort.
"""

import copy
from collections.abc import Sequence

import tensorflow as tf

from terngrad.codec import method
from terngrad.codec.methods import by_variable
from terngrad.codec.methods import few_elements
from terngrad.codec.methods.sparse import topk
from terngrad.codec.stages import random_bits


class RandomK(method.Method):
  """Sends a random fraction of each variable's elements, as float32."""

  agrees = False
  estimates = True
  draws_in_decode = True
  compiled = False  # XLA gathers and scatters element by element

  def __init__(self, ratio: float = 0.01, unbiased: int = 0) -> None:
    """Creates the method.

    Args:
      ratio: of a variable's n elements, k = max(1, ceil(ratio n)) are sent; in
        (0, 1].
      unbiased: 0, for use with error feedback: values are not scaled. 1, for
        use without: scaled by the segment's length, n / k in the mean.

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
    self.traits = by_variable.DETERMINISTIC._replace(
      unbiased=bool(unbiased),
      randomness='shared',
      dense=topk.is_dense(ratio),
    )

  def on_gpus(self) -> method.Method:
    """Returns the method compiled; otherwise its int32 is in host memory."""
    made = copy.copy(self)
    made.compiled = True
    return made

  def omega(self, num_elements: int) -> float | None:
    """Returns the longest segment's length minus 1, if values are scaled."""
    count = max(1, topk.count(self.ratio, num_elements))
    return -(-num_elements // count) - 1.0 if self.unbiased else None

  def counts(self, sizes: Sequence[int]) -> list[int]:
    """Returns the number of elements sent of each variable."""
    return [topk.count(self.ratio, size) for size in sizes]

  def messages(self, shapes: method.Shapes) -> method.Rounds:
    """Declares one round with a float32 sum of the sent elements.

    Raises:
      ValueError: there are more elements than int32 indices can name.
    """
    sizes = method.sizes_of(shapes)
    few_elements.check_indices('randomk', sizes)
    return ((method.float_sum(sum(self.counts(sizes))),),)

  def drawn(self, context: method.Context) -> list[tuple[tf.Tensor, tf.Tensor]]:
    """Draws for each variable int32 [k] indices; int64 [k] segment lengths."""
    found = []
    for size, number, start in zip(
      context.sizes, self.counts(context.sizes), context.starts, strict=True
    ):
      bits = random_bits.range_bits(context.common_key, number, start)
      borders = tf.range(number + 1, dtype=tf.int64) * size // max(1, number)
      lengths = borders[1:] - borders[:-1]
      # The offset in the segment: length * bits / 2**32.
      offsets = tf.bitwise.right_shift(tf.cast(bits, tf.int64) * lengths, 32)
      found.append((tf.cast(borders[:-1] + offsets, tf.int32), lengths))
    return found

  def send(
    self,
    number: int,
    gradients: method.Tensors,
    states: method.Tensors,
    received: method.ReceivedRounds,
    context: method.Context,
  ) -> tuple[list[tf.Tensor], method.Tensors]:
    """Sends the drawn elements of each variable."""
    each, drawn = method.each(gradients, context), self.drawn(context)
    values = [tf.gather(v, i) for v, (i, _) in zip(each, drawn, strict=True)]
    return [tf.bitcast(tf.concat(values, axis=0), tf.int32)], states

  def decode(
    self,
    received: method.ReceivedRounds,
    states: method.Tensors,
    context: method.Context,
  ) -> tuple[list[tf.Tensor], method.Tensors]:
    """Writes the mean values to the drawn indices, with zeros elsewhere."""
    message = self.messages(context.shapes)[0][0]
    means = received[0][0].sum(message)[: message.num_elements] * context.scale
    return method.shaped(self.spread(means, context), context), states

  def estimate(
    self, words: Sequence[tf.Tensor], context: method.Context
  ) -> list[tf.Tensor]:
    """Decodes the values that this worker sent."""
    return self.spread(tf.bitcast(words[0], tf.float32), context)

  def spread(
    self, values: tf.Tensor, context: method.Context
  ) -> list[tf.Tensor]:
    """Writes sent values to the drawn indices, a list of float32 [n]."""
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
