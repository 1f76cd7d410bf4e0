"""Continues text with a trained language model."""

from collections.abc import Callable
from collections.abc import Sequence
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from slim.datasets.records import manifest
from slim.datasets.text import vocabulary
from slim.nets import factory as nets
from terngrad import errors
from terngrad.checkpoint import checkpoints
from terngrad.checkpoint import trained
from terngrad.codec.stages import tracing

# With a smaller one, float32 logits overflow.
_LEAST_TEMPERATURE = 1e-6


class Sampling(NamedTuple):
  """How to choose tokens.

  Attributes:
    num_tokens: largest number of tokens to add, >= 0.
    temperature: divisor of the logits, >= 0; below 1e-6 it takes the most
      probable token.
    seed: equal seeds give equal tokens.
  """

  num_tokens: int = 200
  temperature: float = 0.8
  seed: int = 1


def continue_text(
  net: trained.Trained, data_dir: str, prompt: str, sampling: Sampling
) -> str:
  """Continues a text until the end of a document, or the number of tokens.

  Args:
    net: a language model.
    data_dir: folder of the text that it was trained on, or of another text
      with the same tokens.
    prompt: the text.
    sampling: how to choose tokens.

  Returns:
    The prompt and its continuation. Control characters, which could change the
    terminal, are written as escapes; bytes that are no UTF-8 become U+FFFD.

  Raises:
    errors.ConfigError: the net or the folder is not for text, or they do not
      fit.
    errors.CheckpointError: the net was trained with another vocabulary.
    slim.errors.DataError: the folder is damaged.
  """
  known, longest = _vocabulary(net, data_dir)
  # Bytes of the command line that are no UTF-8 arrive as surrogates.
  text = prompt.encode(errors='surrogateescape')
  tokens = [known.end, *known.encode(text).tolist()]
  # No step sees more tokens than there are at the end.
  length = min(longest, len(tokens) + sampling.num_tokens)
  added = generate(net.model, tokens, length, known.end, sampling)
  return printable(known.decode([*tokens, *added]))


def generate(
  model: keras.Model,
  tokens: Sequence[int],
  length: int,
  end: int,
  sampling: Sampling,
) -> list[int]:
  """Draws tokens that continue a sequence.

  Args:
    model: maps tokens int32 [1, T] to logits float32 [1, T, vocabulary].
    tokens: the sequence, at least one.
    length: number of tokens that the model sees, >= 1; the last ones.
    end: the token after which nothing follows; it is not returned.
    sampling: how to choose tokens.
  """
  logits_of = _last_logits(model, length)
  found, added = [*tokens], []
  for number in range(sampling.num_tokens):
    logits = logits_of(found[-length:])
    if sampling.temperature >= _LEAST_TEMPERATURE:
      seed = tf.constant([sampling.seed, number], tf.int64)
      drawn = tf.random.stateless_categorical(
        logits[tf.newaxis] / sampling.temperature, 1, seed
      )
      token = int(drawn[0, 0])
    else:
      token = int(tf.argmax(logits))
    if token == end:
      break
    found.append(token)
    added.append(token)
  return added


def printable(text: str) -> str:
  """Writes control characters as escapes, except newlines and tabs."""
  return ''.join(
    c if c.isprintable() or c in '\n\t' else repr(c)[1:-1] for c in text
  )


def _last_logits(
  model: keras.Model, length: int
) -> Callable[[Sequence[int]], tf.Tensor]:
  """Returns a function from at most `length` tokens to the next one's logits.

  Sequences are filled up to one length, so that TensorFlow traces once. The
  model is causal, so tokens that follow do not matter.
  """

  @tracing.function
  def call(tokens: tf.Tensor, last: tf.Tensor) -> tf.Tensor:
    return model(tokens, training=False)[0, last]

  def logits(tokens: Sequence[int]) -> tf.Tensor:
    row = np.zeros([1, length], np.int32)
    row[0, : len(tokens)] = tokens
    return call(tf.constant(row), tf.constant(len(tokens) - 1))

  return logits


def _vocabulary(
  net: trained.Trained, data_dir: str
) -> tuple[vocabulary.Vocabulary, int]:
  """Returns the vocabulary of a folder and the length of its sequences."""
  if not nets.find_net(net.layout.net).takes_tokens:
    raise errors.ConfigError(
      'prompt: expected a checkpoint of a language model, received one of '
      f'{net.layout.net}. Use --images, or another --checkpoint_dir.'
    )
  listed = manifest.read(data_dir)
  if listed is None or listed.text is None:
    raise errors.ConfigError(
      f'data_dir: expected a folder of terngrad convert text, received '
      f'{data_dir}. Give the --data_dir of the training.'
    )
  known = vocabulary.load(listed.text.tokenizer)
  if known.size != net.layout.num_classes:
    raise errors.ConfigError(
      f'data_dir: expected {net.layout.num_classes} tokens, as the checkpoint '
      f'has, received {known.size} in {data_dir}. Give the --data_dir of the '
      'training.'
    )
  tokenizer = listed.text.tokenizer_digest
  checkpoints.check_tokenizer('checkpoint_dir', net.layout, tokenizer)
  return known, listed.text.sequence_length
