"""The kernels of codes that send a few elements of each chunk.

They run in eager code and graphs, not under XLA.
"""

from typing import Any
from typing import Protocol

import tensorflow as tf

from terngrad import native


class LayoutLike(Protocol):
  """Such as `codec.methods.sparse.combination_layout.CombinationLayout`."""

  @property
  def number(self) -> int:
    """Indices of a row."""

  @property
  def low_bits(self) -> int:
    """Bits of an index that are stored as they are."""

  @property
  def largest(self) -> int:
    """Largest value of the upper bits."""

  @property
  def number_words(self) -> int:
    """Words of the number of the combination."""

  @property
  def low_words(self) -> int:
    """Words of the lowest bits."""


def largest_of_chunks(
  elements: tf.Tensor, chunk: int, kept: int
) -> tuple[tf.Tensor, tf.Tensor]:
  """Selects the elements of largest magnitude of each whole chunk.

  Args:
    elements: float32 [n].
    chunk: elements of a chunk; the rest of `elements` is ignored.
    kept: number of elements of a chunk to select, from 1 to `chunk`.

  Returns:
    (int32 [chunks, kept], indices in the chunk in ascending order; float32
    [chunks, kept]). Of equal magnitudes the first are selected.
  """
  found = native.library().terngrad_largest_of_chunks(
    elements=elements, chunk=chunk, kept=kept
  )
  return found.indices, found.values


def pack_combinations(indices: tf.Tensor, layout: LayoutLike) -> tf.Tensor:
  """Packs rows of indices as `codec.methods.sparse.combinations.pack` does.

  Args:
    indices: int32 [r, k], each row ascending.
    layout: of the rows.

  Returns:
    int32 [r, words].
  """
  return native.library().terngrad_pack_combinations(
    indices=indices, **_attributes(layout)
  )


def unpack_combinations(words: tf.Tensor, layout: LayoutLike) -> tf.Tensor:
  """Inverts `pack_combinations`; safe for any words.

  Args:
    words: int32 [r, words].
    layout: of the rows.

  Returns:
    int32 [r, k].
  """
  return native.library().terngrad_unpack_combinations(
    words=words, **_attributes(layout)
  )


def _attributes(layout: LayoutLike) -> dict[str, Any]:
  return {
    'number': layout.number,
    'low_bits': layout.low_bits,
    'largest': layout.largest,
    'number_words': layout.number_words,
    'low_words': layout.low_words,
  }
