"""Words on their way to where any number of them may come, as to a server.

Of messages whose length varies those after the last that is used stay behind:
they are zero.
"""

from collections.abc import Sequence

import tensorflow as tf

from terngrad.codec import method
from terngrad.codec.stages import wire


def varies(message: method.Message) -> bool:
  """Whether fewer than all words of a `method.Message` may be used."""
  return isinstance(message.packing, wire.VariablePacking)


def trimmed(
  message: method.Message,
  words: tf.Tensor,
  start: int = 0,
  stop: int | None = None,
) -> tf.Tensor:
  """A range of the words of a device's workers, as far as one of them uses it.

  Args:
    message: `method.Message`.
    words: int32 [n, words of the message].
    start: first word of the range.
    stop: word after its last; None for all.

  Returns:
    int32 [n, any].
  """
  stop = message.num_words if stop is None else stop
  if not varies(message):
    return words[:, start:stop]
  used = tf.reduce_max(message.sent_words(words))
  return words[:, start : tf.clip_by_value(used, start, stop)]


def restored(words: tf.Tensor, size: int) -> tf.Tensor:
  """The inverse of `trimmed`: int32 [n, size] of int32 [n, any]."""
  if words.shape[1] == size:
    return words
  whole = tf.pad(words, [[0, 0], [0, size - tf.shape(words)[1]]])
  return tf.ensure_shape(whole, [words.shape[0], size])


def cut(
  messages: Sequence[method.Message], words: tf.Tensor
) -> list[tf.Tensor]:
  """All of a round's words that are used.

  Args:
    messages: list of `method.Message`, in the order of their words.
    words: int32 [n, words of all messages].

  Returns:
    List of int32 [n, any]: one a message, or all where no length varies.
  """
  if not any(map(varies, messages)):
    return [words]
  parts = tf.split(words, [m.num_words for m in messages], axis=1)
  return [trimmed(*pair) for pair in zip(messages, parts, strict=True)]


def joined(
  messages: Sequence[method.Message], parts: Sequence[tf.Tensor]
) -> tf.Tensor:
  """The inverse of `cut`: int32 [n, words of all messages]."""
  if not any(map(varies, messages)):
    return parts[0]
  pairs = zip(parts, messages, strict=True)
  whole = [restored(words, message.num_words) for words, message in pairs]
  return tf.concat(whole, axis=1)
