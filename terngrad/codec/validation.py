"""Refuses payloads that no encoder made, before they are decoded.

Training pays nothing for it: this is for words from files and sockets, eagerly.
"""

import numpy as np
import tensorflow as tf


def validate(packing, words, num_elements):
  """See `contract.Codec.validate`.

  Args:
    packing: `contract.Packing` or `contract.VariablePacking`.
    words: anything that NumPy takes for int32 [w].
    num_elements: of the bucket.

  Returns:
    NumPy int32 [packing.num_words(num_elements)].
  """
  words = np.asarray(words)
  if words.dtype not in (np.int32, np.uint32) or words.ndim != 1:
    raise ValueError(
      f'{packing.name}: expected int32 words of one dimension, received '
      f'{words.dtype} {words.shape}. Send the flat payload.'
    )
  words = words.view(np.int32)
  capacity = packing.num_words(num_elements)
  if hasattr(packing, 'check'):
    words = _restore(packing, words, num_elements, capacity)
    packing.check(words.view(np.uint32), num_elements)
    return words
  check_length(packing.name, words, num_elements, capacity)
  if packing.levels is not None:
    check_codes(packing, words, num_elements)
  return words


def check_length(name, words, num_elements, expected):
  """Raises ValueError unless there are `expected` words."""
  if words.size != expected:
    raise ValueError(
      f'{name}: expected {expected} words for {num_elements} elements, '
      f'received {words.size}. The payload is torn, or of another bucket.'
    )


def check_codes(packing, words, num_elements):
  """Raises ValueError unless int32 `words` are what packs to them.

  Args:
    packing: `contract.Packing` of codes.
    words: NumPy int32 [w].
    num_elements: of the bucket.
  """
  planes = packing.unpack(tf.constant(words))
  codes = tf.concat(planes, axis=0).numpy()
  wrong = np.flatnonzero(np.abs(codes) > packing.levels)
  if wrong.size:
    raise ValueError(
      f'{packing.name}: expected codes from {-packing.levels} to '
      f'{packing.levels}, received the digit of {codes[wrong[0]]} for element '
      f'{wrong[0]}. {_SPOILT}'
    )
  if codes[num_elements:].any():
    raise ValueError(
      f'{packing.name}: expected code zero past the last of {num_elements} '
      f'elements, received another. {_SPOILT}'
    )
  check_same(packing.name, words, packing.pack(planes).numpy())


def check_same(name, words, again):
  """Raises ValueError unless words are equal to what their codes pack to.

  Args:
    name: of the packing.
    words: NumPy int32 [w], received.
    again: NumPy int32 [w], what they decode to, encoded again.
  """
  differ = np.flatnonzero(words != again)
  if differ.size:
    at = differ[0]
    raise ValueError(
      f'{name}: expected word {at} to be {_hex(again[at])}, as its codes pack '
      f'to, received {_hex(words[at])}. {_SPOILT}'
    )


def _restore(packing, words, num_elements, capacity):
  """A variable payload with the zeros that were not sent, int32 [capacity]."""
  used = int(packing.used(tf.constant(words[0]))) if words.size else 1
  if not 1 <= used <= min(words.size, capacity) or words.size > capacity:
    raise ValueError(
      f'{packing.name}: expected 1 to {capacity} words for {num_elements} '
      f'elements, as many as the first says, received {words.size}, and it '
      f'says {used}. The payload is torn, or of another bucket.'
    )
  if words[used:].any():
    raise ValueError(
      f'{packing.name}: expected zeros after the {used} used words, received '
      f'others. {_SPOILT}'
    )
  return np.pad(words, [0, capacity - words.size])


def _hex(word):
  return f'0x{int(word) & 0xFFFFFFFF:08x}'


_SPOILT = 'The payload was damaged or made by another codec: send it again.'
