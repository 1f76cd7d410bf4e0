"""The layout of the words of `combinations`, and its table of binomials."""

import functools
import math
from typing import NamedTuple

import numpy as np

# Bits of a limb, of which a table's numbers consist.
LIMB = 16
# Largest number of words in a table, 2 MB.
_TABLE_WORDS = 2**19


class CombinationLayout(NamedTuple):
  """The words of a row of indices.

  Attributes:
    number: k, the number of indices.
    low_bits: l, bits of an index that are stored as they are.
    largest: the largest value of the upper bits; for l = 0, of an index minus
      its position in the row.
    number_words: words of the number of the combination.
    low_words: words of the lowest bits.
  """

  number: int
  low_bits: int
  largest: int
  number_words: int
  low_words: int

  @property
  def num_words(self) -> int:
    """Words of a row."""
    return self.number_words + self.low_words


@functools.cache
def layout(number: int, num_elements: int) -> CombinationLayout:
  """Chooses the layout of rows of k indices below n, 1 <= k <= n.

  It has the fewest words of those with a small table and, of equal ones, the
  smallest table.
  """
  choices = []
  for low_bits in range((num_elements - 1).bit_length() + 1):
    # Indices are distinct, their upper bits are not.
    largest = (num_elements - 1) >> low_bits
    if not low_bits:
      largest = num_elements - number
    bits = (math.comb(largest + number, number) - 1).bit_length()
    words = -(-bits // 32), -(-low_bits * number // 32)
    if (largest + 1) * number * words[0] <= _TABLE_WORDS:
      choices.append(CombinationLayout(number, low_bits, largest, *words))
  return min(choices, key=lambda one: (one.num_words, -one.low_bits))


@functools.cache
def table(layout: CombinationLayout) -> np.ndarray:
  """Computes (i + d choose i + 1) for all d and i.

  Returns:
    int32 [(largest + 1) k, limbs]. Row d k + i has the limbs of a number, the
    lowest first.
  """
  limbs = 2 * layout.number_words
  found = np.zeros([layout.largest + 1, layout.number, limbs], np.int32)
  row = [0] * layout.number
  for d in range(1, layout.largest + 1):
    # Pascal's rule.
    before = 1
    for i in range(layout.number):
      before = row[i] = row[i] + before
    data = b''.join(one.to_bytes(2 * limbs, 'little') for one in row)
    found[d] = np.frombuffer(data, '<u2').reshape(found[d].shape)
  return found.reshape([-1, limbs])
