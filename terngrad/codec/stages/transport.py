"""The data type of words between encoding and decoding: float32, by bitcast.

A method packs its messages to int32 words and unpacks int32 words. Between the
two, in functions' results, loops, exchanges and variables, the same 32 bits are
float32. On GPUs TensorFlow keeps int32 tensors in host memory in most of its
operations and at the borders of functions, so that int32 words would be copied
to the host and back. Of the types of 32 bits only float32 has a GPU kernel for
every operation that moves data.

Such floats may be NaNs and subnormals. They must only be moved: arithmetic, and
comparing or casting them, would change bits. A bitcast copies nothing.
"""

from collections.abc import Callable
from typing import TypeVar

import tensorflow as tf

# The attribute of functions that `accepts_float32` has marked.
_MARK = 'accepts_float32'
_Function = TypeVar('_Function', bound=Callable[..., object])


def to_float32(words: tf.Tensor) -> tf.Tensor:
  """Returns int32 words, or sums, as float32 of the same bits.

  Other types, such as int8 sums, are returned unchanged.
  """
  return tf.bitcast(words, tf.float32) if words.dtype == tf.int32 else words


def to_int32(words: tf.Tensor) -> tf.Tensor:
  """Inverts `to_float32`; int32 words and int8 sums are returned unchanged."""
  return tf.bitcast(words, tf.int32) if words.dtype == tf.float32 else words


def accepts_float32(function: _Function) -> _Function:
  """Marks a `decode_sum` whose `parts` may be float32.

  It casts one payload at a time. In compiled code a cast of all payloads before
  a loop over them would copy them.
  """
  vars(function)[_MARK] = True
  return function


def takes_float32(function: Callable[..., object]) -> bool:
  """Returns whether `accepts_float32` has marked a function."""
  return getattr(function, _MARK, False)
