"""Removes unused words before a transfer and restores them after it.

Used for transfers that accept any number of words, as to a parameter server.
In messages of variable length all words after the last used one are zero.
"""

from collections.abc import Sequence

import tensorflow as tf

from terngrad.codec import method
from terngrad.codec.stages import wire


def varies(message: method.Message) -> bool:
  """Returns True if a message may use fewer than all of its words."""
  return isinstance(message.packing, wire.VariablePacking)


def trim(
  message: method.Message,
  words: tf.Tensor,
  start: int = 0,
  stop: int | None = None,
) -> tf.Tensor:
  """Selects a range of words up to the last word that a worker uses.

  Args:
    message: the message.
    words: int32 [n, words of the message], of a device's workers.
    start: first word of the range.
    stop: word after the last one; None for the end of the message.

  Returns:
    int32 [n, any].
  """
  stop = message.num_words if stop is None else stop
  if not varies(message):
    return words[:, start:stop]
  used = tf.reduce_max(message.sent_words(words))
  return words[:, start : tf.clip_by_value(used, start, stop)]


def restore(words: tf.Tensor, size: int) -> tf.Tensor:
  """Inverts `trim`: pads int32 [n, any] with zeros to int32 [n, size]."""
  if words.shape[1] == size:
    return words
  whole = tf.pad(words, [[0, 0], [0, size - tf.shape(words)[1]]])
  return tf.ensure_shape(whole, [words.shape[0], size])


def cut(
  messages: Sequence[method.Message], words: tf.Tensor
) -> list[tf.Tensor]:
  """Selects the used words of all messages of a round.

  Args:
    messages: in the order of their words.
    words: int32 [n, words of all messages].

  Returns:
    List of int32 [n, any], one per message; one tensor for all messages if no
    length varies.
  """
  if not any(map(varies, messages)):
    return [words]
  parts = tf.split(words, [m.num_words for m in messages], axis=1)
  return [trim(*pair) for pair in zip(messages, parts, strict=True)]


def join(
  messages: Sequence[method.Message], parts: Sequence[tf.Tensor]
) -> tf.Tensor:
  """Inverts `cut`: returns int32 [n, words of all messages]."""
  if not any(map(varies, messages)):
    return parts[0]
  pairs = zip(parts, messages, strict=True)
  whole = [restore(words, message.num_words) for words, message in pairs]
  return tf.concat(whole, axis=1)
