"""Sparse ternary compression: few elements, one magnitude, short indices.

Sattler et al., Robust and Communication-Efficient Federated Learning from
Non-IID Data, 2019, https://arxiv.org/abs/1903.02891, algorithm 1: the largest
elements of each variable are sent as signs times their mean magnitude.
Departure: indices are not Golomb codes of the gaps but their Elias-Fano form
(Elias, Efficient Storage and Retrieval by Content and Address of Static Files,
Journal of the ACM 21 (2), 1974). Both store the upper bits as unary
differences; Elias-Fano stores the lower bits separately. With one element of a
hundred it takes 8.6 bits per index instead of 8.1, but the number of words is
fixed, and packing and unpacking are a few operations on whole vectors.
"""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from terngrad.codec.methods import few_elements
from terngrad.codec.methods import validation
from terngrad.codec.methods.sparse import elias_fano
from terngrad.codec.methods.sparse import topk
from terngrad.codec.stages import packing
from terngrad.codec.stages import statistics
from terngrad.codec.stages import wire
from terngrad.native import sparse_ops

_SIGNS = packing.unsigned(1)


class Stc(topk.TopK):
  """Sends the largest elements as plus or minus their mean magnitude.

  Use it with error feedback.
  """

  kind = 'stc'
  pack_indices = staticmethod(elias_fano.pack)
  unpack_indices = staticmethod(elias_fano.unpack)

  def __init__(self, ratio: float = 0.01) -> None:
    """Creates the code.

    Args:
      ratio: fraction of elements sent, see `topk.TopK`. A sent element costs
        about log2(1 / ratio) + 3 bits.

    Raises:
      ValueError: `ratio` is out of its range.
    """
    super().__init__(ratio)

  def num_words(self, num_elements: int) -> int:
    """Returns the number of words of the magnitude, signs and indices."""
    if not num_elements:
      return 0
    number = topk.count(self.ratio, num_elements)
    indices = elias_fano.num_words(number, num_elements)
    return 1 + _SIGNS.num_words(number) + indices

  def encode_variable(
    self, values: tf.Tensor, draws: Callable[[], tf.Tensor]
  ) -> tf.Tensor:
    """Packs the magnitude, signs and indices of the largest elements."""
    # Layout: the magnitude, the signs in the order of the indices, the indices.
    size = values.shape[0]
    indices, sent = self.find(values, topk.count(self.ratio, size))
    magnitude = tf.bitcast(statistics.mean_magnitude(sent), tf.int32)
    negative = tf.cast(tf.bitcast(sent, tf.int32) < 0, tf.int32)
    return tf.concat(
      [
        magnitude[tf.newaxis],
        _SIGNS.pack_flat(negative),
        self.pack_indices(indices, size),
      ],
      axis=0,
    )

  def elements(
    self, words: tf.Tensor, num_elements: int
  ) -> tuple[tf.Tensor, tf.Tensor]:
    """Unpacks the indices and signed magnitudes of one variable."""
    number = topk.count(self.ratio, num_elements)
    end = 1 + _SIGNS.num_words(number)
    negative = _SIGNS.unpack_flat(words[1:end], number)
    magnitude = tf.bitcast(words[0], tf.float32)
    indices = self.unpack_indices(words[end:], number, num_elements)
    values = tf.where(negative > 0, -magnitude, magnitude)
    return few_elements.mask_invalid(indices, num_elements), values

  def check(
    self, words: np.ndarray, num_elements: int
  ) -> tuple[wire.Packing, np.ndarray, int]:
    """Rejects an invalid magnitude and unsorted indices; returns the signs."""
    number = topk.count(self.ratio, num_elements)
    end = 1 + _SIGNS.num_words(number)
    magnitudes = words[:1].view(np.float32)
    validation.check_scales(self.name, magnitudes, 'a finite magnitude >= 0')
    elias_fano.check(self.name, words[end:], number, num_elements)
    return _SIGNS, words[1:end], number


class _StcOnKernels(topk.TopKOnKernels, Stc, twin_of=Stc):
  words_kind = sparse_ops.SIGNED_INDICES
  pack_indices = staticmethod(sparse_ops.pack_indices)
  unpack_indices = staticmethod(sparse_ops.unpack_indices)
