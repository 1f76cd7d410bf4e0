"""Rejects payloads that no encoder made, before they are decoded.

Checks words from files and sockets, in eager mode. Training runs no checks.
"""

from typing import Any

import numpy as np
import tensorflow as tf

from terngrad.codec import coded
from terngrad.codec.stages import wire


def validate(codec: coded.Code, words: Any, num_elements: int) -> np.ndarray:
  """Checks a payload that came from a file or a socket.

  `decode_sum` is safe for any words, but decodes words that no encoder made to
  arbitrary gradients.

  Args:
    codec: the code of the payload.
    words: array of int32 or uint32 [w]. Zeros at its end that were not sent
      may be missing.
    num_elements: number of elements of the bucket; for codes of scope VARIABLE,
      of the variable.

  Returns:
    NumPy int32 [codec.num_words(num_elements)], for `decode_sum`.

  Raises:
    ValueError: no encoder makes such a payload. The message says what was
      expected.
  """
  packing = codec.packing
  kind = packing or codec
  words = np.asarray(words)
  if words.dtype not in (np.int32, np.uint32) or words.ndim != 1:
    raise ValueError(
      f'{kind.name}: expected int32 words of one dimension, received '
      f'{words.dtype} {words.shape}. Pass the flat payload.'
    )
  words = words.view(np.int32)
  capacity = kind.num_words(num_elements)
  if isinstance(packing, wire.VariablePacking):
    words = _restore(packing, words, num_elements, capacity)
    packing.check(words, packing.width(num_elements))
  elif words.size != capacity:
    raise ValueError(
      f'{kind.name}: expected {capacity} words for {num_elements} elements, '
      f'received {words.size}. The payload is incomplete or from another '
      'bucket.'
    )
  if packing is None:
    return words  # only the code knows their format
  if isinstance(packing, wire.CompositePacking):
    codes = packing.check(words, num_elements) if num_elements else None
    if codes:
      _check_codes(*codes)
  elif packing.levels is not None:
    _check_codes(packing, words, num_elements)
  else:
    _check_floats(packing, words, num_elements)
  return words


def check_scales(
  name: str, scales: np.ndarray, expected: str, signed: bool = False
) -> None:
  """Raises ValueError for scales that no encoder makes.

  Args:
    name: the packing, for the message.
    scales: float32 [n], of a payload.
    expected: description of valid scales, for the message.
    signed: whether scales may be negative.
  """
  invalid = scales[~(np.isfinite(scales) & (signed | (scales >= 0)))]
  if invalid.size:
    raise ValueError(
      f'{name}: expected {expected}, received {invalid[0]}. {_CORRUPTED}'
    )


def _check_floats(
  packing: wire.Packing | wire.VariablePacking,
  words: np.ndarray,
  num_elements: int,
) -> None:
  """Raises ValueError unless words contain finite numbers, and then zeros."""
  values = wire.join(packing.planes(tf.constant(words), num_elements)).numpy()
  invalid = np.flatnonzero(~np.isfinite(values))
  if invalid.size:
    raise ValueError(
      f'{packing.name}: expected finite numbers, received {values[invalid[0]]} '
      f'for element {invalid[0]}. {_CORRUPTED}'
    )
  if values[num_elements:].view(np.int32).any():
    raise ValueError(
      f'{packing.name}: expected zeros past the last of {num_elements} '
      f'elements, received others. {_CORRUPTED}'
    )


def _check_codes(
  packing: wire.Packing | wire.VariablePacking,
  words: np.ndarray,
  num_elements: int,
) -> None:
  """Raises ValueError unless packing the codes in `words` gives `words`."""
  found = packing.planes(tf.constant(words), num_elements)
  codes = wire.join(found).numpy()
  levels = packing.levels or 0
  invalid = np.flatnonzero(np.abs(codes) > levels)
  if invalid.size:
    raise ValueError(
      f'{packing.name}: expected codes from {-levels} to '
      f'{levels}, received code {codes[invalid[0]]} for element '
      f'{invalid[0]}. {_CORRUPTED}'
    )
  if np.any(codes[num_elements:] != packing.fill):
    raise ValueError(
      f'{packing.name}: expected code {packing.fill} past the last of '
      f'{num_elements} elements, received another. {_CORRUPTED}'
    )
  repacked = packing.pack(list(found)).numpy()
  differences = np.flatnonzero(words != repacked)
  if differences.size:
    index = differences[0]
    raise ValueError(
      f'{packing.name}: expected word {index} to be {_hex(repacked[index])}, '
      f'to which its codes pack, received {_hex(words[index])}. {_CORRUPTED}'
    )


def _restore(
  packing: wire.VariablePacking,
  words: np.ndarray,
  num_elements: int,
  capacity: int,
) -> np.ndarray:
  """Appends the zeros that were not sent to a payload, int32 [capacity]."""
  used = int(packing.used(tf.constant(words[0]))) if words.size else 1
  if not 1 <= used <= min(words.size, capacity) or words.size > capacity:
    raise ValueError(
      f'{packing.name}: expected 1 to {capacity} words for {num_elements} '
      f'elements, as many as the first word gives, received '
      f'{words.size} and a first word of {used}. The payload is incomplete or '
      'from another bucket.'
    )
  if words[used:].any():
    raise ValueError(
      f'{packing.name}: expected zeros after the {used} used words, received '
      f'others. {_CORRUPTED}'
    )
  return np.pad(words, [0, capacity - words.size])


def _hex(word: int) -> str:
  return f'0x{int(word) & 0xFFFFFFFF:08x}'


_CORRUPTED = 'The payload is corrupted or from another codec. Send it again.'
