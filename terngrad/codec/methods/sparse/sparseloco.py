"""SparseLoCo's code: the largest elements of each chunk, in 2 bits.

Sarfi, Thérien, Lidin and Belilovsky, Communication Efficient LLM Pre-training
with SparseLoCo, 2025, https://arxiv.org/abs/2508.15706. A variable is cut into
chunks of 4096 elements, of each chunk the 64 largest are sent, and their values
are quantized to four levels, see `four_levels`. With `error_feedback:decay=
0.95` in front, the residual follows the paper: e <- beta e + Delta, and what
was sent is subtracted. `terngrad.recipes.sparseloco` has the whole recipe.

Departures. A variable is flattened row by row and cut; the authors' public code
cuts matrices into blocks of 64 times 64 instead. Vectors, such as biases, are
cut alike. The last chunk of a variable may be shorter: of its r elements
ceil(64 r / 4096) are sent, at least one. A worker's message has the four levels
of each variable, 128 bits. Indices are numbered by `combinations` and take 7.5
bits each, where the paper's 12 bits are the index itself. The mean is over all
workers; the public code has divided by the number of those that sent an
element.
"""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from terngrad.codec.methods import by_variable
from terngrad.codec.methods import few_elements
from terngrad.codec.methods import four_levels
from terngrad.codec.methods import validation
from terngrad.codec.methods.sparse import combinations
from terngrad.codec.methods.sparse import sparse_chunks
from terngrad.codec.methods.sparse import topk
from terngrad.codec.stages import wire
from terngrad.native import chunk_ops

_LEVELS, _BITS = four_levels.LEVELS, four_levels.BITS


class SparseLoCo(by_variable.FewElementsByVariable):
  """Sends the largest elements of each chunk in 2 bits each.

  Use it with error feedback.
  """

  pack_rows = staticmethod(combinations.pack)
  unpack_rows = staticmethod(combinations.unpack)

  def __init__(self, chunk: int = 4096, kept: int = 64) -> None:
    """Creates the code.

    Args:
      chunk: elements of a chunk, from 2 to 8192.
      kept: number of elements of a chunk that are sent, less than `chunk` and
        at most 128.

    Raises:
      ValueError: an option is out of its range.
    """
    sparse_chunks.check_options(chunk, kept)
    self.name, self.chunk, self.kept = (
      f'sparseloco({kept}/{chunk})',
      chunk,
      kept,
    )

  def find(
    self, elements: tf.Tensor, chunk: int, kept: int
  ) -> tuple[tf.Tensor, tf.Tensor]:
    """Finds the largest elements of each whole chunk.

    Args:
      elements: float32 [n].
      chunk: elements of a chunk.
      kept: number of elements of a chunk to find.

    Returns:
      (int32 [chunks, kept], indices in the chunk in rising order; their
      elements). Of equal magnitudes the first are found.
    """
    rows = elements.shape[0] // chunk
    values = tf.reshape(elements[: rows * chunk], [rows, chunk])
    magnitudes = tf.bitwise.bitwise_and(
      tf.bitcast(values, tf.int32), topk.MAGNITUDE
    )
    indices = tf.sort(tf.math.top_k(magnitudes, kept).indices, axis=1)
    return indices, tf.gather(values, indices, batch_dims=1)

  def num_words(self, num_elements: int) -> int:
    """Returns the number of words of the levels, values and indices."""
    if not num_elements:
      return 0
    parts = sparse_chunks.parts(num_elements, self.chunk, self.kept)
    number = sum(part.number for part in parts)
    indices = sum(part.num_words for part in parts)
    return _LEVELS + _BITS.num_words(number) + indices

  def encode_variable(
    self, values: tf.Tensor, draws: Callable[[], tf.Tensor]
  ) -> tf.Tensor:
    """Packs the levels, values and indices of the elements that are sent."""
    # Layout: the levels, the values of all chunks in the order of the indices,
    # and the indices, chunk by chunk.
    sent, words = [], []
    for part in sparse_chunks.parts(values.shape[0], self.chunk, self.kept):
      some = values[part.start :] if part.start else values
      indices, found = self.find(some, part.chunk, part.kept)
      sent.append(tf.reshape(found, [-1]))
      words.append(tf.reshape(self.pack_rows(indices, part.layout), [-1]))
    levels, codes = four_levels.quantize(tf.concat(sent, 0)[tf.newaxis])
    levels = tf.bitcast(tf.concat(levels, 0), tf.int32)
    return tf.concat([levels, _BITS.pack_flat(codes[0]), *words], axis=0)

  def elements(
    self, words: tf.Tensor, num_elements: int
  ) -> tuple[tf.Tensor, tf.Tensor]:
    """Unpacks the indices and values of one variable."""
    parts = sparse_chunks.parts(num_elements, self.chunk, self.kept)
    number = sum(part.number for part in parts)
    first = _LEVELS + _BITS.num_words(number)
    codes = _BITS.unpack_flat(words[_LEVELS:first], number)
    levels = tf.bitcast(words[:_LEVELS], tf.float32)
    indices = []
    for part in parts:
      rows = tf.reshape(words[first : first + part.num_words], [part.rows, -1])
      first += part.num_words
      local = self.unpack_rows(rows, part.layout)
      starts = part.start + part.chunk * tf.range(part.rows)[:, tf.newaxis]
      found = tf.where(local < part.chunk, local + starts, num_elements)
      indices.append(tf.reshape(found, [-1]))
    return tf.concat(indices, 0), four_levels.dequantize(levels, codes)

  def check(
    self, words: np.ndarray, num_elements: int
  ) -> tuple[wire.Packing, np.ndarray, int]:
    """Rejects levels and indices that no encoder makes; returns the values."""
    parts = sparse_chunks.parts(num_elements, self.chunk, self.kept)
    validation.check_scales(
      self.name, words[:_LEVELS].view(np.float32), 'finite levels', signed=True
    )
    number = sum(part.number for part in parts)
    first = _LEVELS + _BITS.num_words(number)
    sparse_chunks.check(self.name, words[first:], parts)
    return _BITS, words[_LEVELS:first], number


class _SparseLoCoOnKernels(
  few_elements.FewElementsOnKernels, SparseLoCo, twin_of=SparseLoCo
):
  find = staticmethod(chunk_ops.largest_of_chunks)
  pack_rows = staticmethod(chunk_ops.pack_combinations)
  unpack_rows = staticmethod(chunk_ops.unpack_combinations)
