"""The chunks of a variable from which `sparseloco` sends few elements."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from terngrad.codec.methods.sparse import combination_layout
from terngrad.codec.methods.sparse import combinations

MOST_KEPT, LARGEST_CHUNK = 128, 8192


class Chunks(NamedTuple):
  """Chunks of equal size of a variable.

  Attributes:
    start: first element in the variable.
    rows: number of chunks.
    chunk: elements of a chunk.
    kept: number of elements of a chunk that are sent.
  """

  start: int
  rows: int
  chunk: int
  kept: int

  @property
  def number(self) -> int:
    """Number of elements that are sent."""
    return self.rows * self.kept

  @property
  def layout(self) -> combination_layout.CombinationLayout:
    """Of the indices of a chunk."""
    return combination_layout.layout(self.kept, self.chunk)

  @property
  def num_words(self) -> int:
    """Words of the indices of all chunks."""
    return self.rows * self.layout.num_words


def check_options(chunk: int, kept: int) -> None:
  """Raises ValueError unless the options are in their ranges."""
  if not 2 <= chunk <= LARGEST_CHUNK:
    raise ValueError(
      f'sparseloco: expected chunk from 2 to {LARGEST_CHUNK}, received {chunk}.'
      ' Use chunk=4096.'
    )
  if not 1 <= kept <= min(MOST_KEPT, chunk - 1):
    raise ValueError(
      f'sparseloco: expected kept from 1 to {min(MOST_KEPT, chunk - 1)} for '
      f'chunk={chunk}, received {kept}. Use kept={max(1, chunk // 64)}, or the '
      'code statistical to send all elements.'
    )


def parts(num_elements: int, chunk: int, kept: int) -> list[Chunks]:
  """Returns the whole chunks of a variable, and then the rest, if any.

  Of a rest of r elements ceil(kept r / chunk) are sent.
  """
  rows, rest = divmod(num_elements, chunk)
  found = [Chunks(0, rows, chunk, kept)] if rows else []
  if rest:
    found.append(Chunks(rows * chunk, 1, rest, -(-kept * rest // chunk)))
  return found


def check(name: str, words: np.ndarray, chunks: Sequence[Chunks]) -> None:
  """Raises ValueError unless NumPy int32 words are what an encoder packs."""
  for part in chunks:
    rows = words[: part.num_words].reshape([part.rows, -1])
    words = words[part.num_words :]
    indices = combinations.unpack(tf.constant(rows), part.layout)
    rising = tf.reduce_all(indices[:, 1:] > indices[:, :-1])
    # Indices that are not rising need not have a number.
    if (
      not (rising and tf.reduce_all(indices < part.chunk))
      or (combinations.pack(indices, part.layout) != rows).numpy().any()
    ):
      raise ValueError(
        f'{name}: expected {part.kept} indices below {part.chunk} in ascending '
        'order in each chunk, received others. The payload is corrupted or '
        'from another codec. Send it again.'
      )
