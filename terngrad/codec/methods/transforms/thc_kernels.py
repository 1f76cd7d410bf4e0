"""`thc` with native kernels; XLA compiles the remaining computations."""

from collections.abc import Sequence
from typing import TYPE_CHECKING
from typing import cast

import numpy as np
import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.codec import wrapper
from terngrad.codec.stages import random_bits
from terngrad.codec.stages import tracing
from terngrad.codec.stages import transport
from terngrad.codec.stages import wire
from terngrad.native import rotated_ops

if TYPE_CHECKING:
  from terngrad.codec.methods.transforms import thc

_Pair = tuple[tf.Tensor, tf.Tensor]


class ThcOnKernels(wrapper.Wrapper):
  """A `thc.Thc` with native kernels, which give the same bits.

  Variables without elements have keys, but no blocks.

  Attributes:
    uses_gpus: whether the kernels are those for GPUs.
  """

  method: 'thc.Thc'

  def __init__(
    self, plain: 'thc.Thc', table: np.ndarray, on_gpus: bool = False
  ) -> None:
    """Wraps `plain`, whose `table` has int [16] entries."""
    super().__init__(plain)
    self.uses_gpus = on_gpus
    wrapper.compile_separately(self, plain, ['begin'])
    self.entries = [int(entry) for entry in table]
    self.encoder_inputs = tracing.compiled(self._encoder_inputs)
    self.sum_inputs = tracing.compiled(self._sum_inputs)
    self.word_inputs = tracing.compiled(self._word_inputs)

  def send(
    self,
    number: int,
    gradients: methods.Tensors,
    states: methods.Tensors,
    received: methods.ReceivedRounds,
    context: methods.Context,
  ) -> tuple[list[tf.Tensor], methods.Tensors]:
    """Rotates, rounds and packs gradients with one kernel."""
    if not sum(context.sizes):
      return self.method.send(number, gradients, states, received, context)
    ((message,),) = self.messages(context.shapes)
    scales, keys = self.encoder_inputs(context)
    sizes, num_words = context.sizes, message.num_words
    words = rotated_ops.encode_table(
      gradients, sizes, scales, keys, num_words, self.entries, self.uses_gpus
    )
    return [words], states

  def decode(
    self,
    received: methods.ReceivedRounds,
    states: methods.Tensors,
    context: methods.Context,
  ) -> tuple[list[tf.Tensor], methods.Tensors]:
    """Decodes the sums of entries to means with one kernel."""
    if not sum(context.sizes):
      return self.method.decode(received, states, context)
    sums, factors, signs = self.sum_inputs(received[0][0], context)
    means = rotated_ops.decode_table(
      sums, factors, signs, context.shapes, self.uses_gpus
    )
    return means, states

  def estimate(
    self, words: Sequence[tf.Tensor], context: methods.Context
  ) -> list[tf.Tensor]:
    """Decodes the entries that this worker sent with one kernel."""
    if not sum(context.sizes):
      return self.method.estimate(words, context)
    sums, factors, signs = self.word_inputs(words[0], context)
    shapes = [[size] for size in context.sizes]
    return rotated_ops.decode_table(
      sums, factors, signs, shapes, self.uses_gpus
    )

  def _encoder_inputs(self, context: methods.Context) -> tuple[_Pair, _Pair]:
    """Returns the pairs of block scales and of variable keys."""
    norms = [norm for norm, _ in self._norms(context)]
    starts = tf.constant(context.starts)
    draws = random_bits.fold_in(context.worker_key[:2][tf.newaxis], starts)
    scales = self.method.scales(tf.concat(norms, axis=0))
    return scales, (self._signs(context), draws)

  def _sum_inputs(
    self, received: methods.Received, context: methods.Context
  ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns sums of entries, factors of blocks and keys of variables."""
    ((message,),) = self.messages(context.shapes)
    factors = self._factors(context, context.scale)
    return self._moved(received.sum(message)), factors, self._signs(context)

  def _word_inputs(
    self, words: tf.Tensor, context: methods.Context
  ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns what `_sum_inputs` does, from one worker's words."""
    ((message,),) = self.messages(context.shapes)
    # This packing is `thc.entries`.
    packing = cast(wire.Packing, message.packing)
    sums = packing.unpack_flat(words, message.num_elements)
    factors = self._factors(context, 1.0)
    return self._moved(sums), factors, self._signs(context)

  def _moved(self, sums: tf.Tensor) -> tf.Tensor:
    """Returns sums as they leave a compiled function."""
    return transport.to_float32(sums) if self.uses_gpus else sums

  def _factors(self, context: methods.Context, scale: float) -> tf.Tensor:
    """Returns the factors of rotated sums, float32 [blocks]."""
    pairs = self._norms(context)
    factors = [self.method.decoding_factors(*pair, scale) for pair in pairs]
    return tf.concat(factors, axis=0)

  def _norms(self, context: methods.Context) -> list[tuple[tf.Tensor, int]]:
    """Returns (agreed norms, number of elements) of variables with elements."""
    pairs = zip(self.method.split_norms(context), context.sizes, strict=True)
    return [(norm, size) for norm, size in pairs if size]

  def _signs(self, context: methods.Context) -> tf.Tensor:
    """Returns the key of each variable's rotation, uint32 [v, 2]."""
    common = context.common_key
    return tf.stack(
      [random_bits.advance_key(common, start) for start in context.starts]
    )
