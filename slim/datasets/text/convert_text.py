"""Plans the shards of a corpus of text: sequences of tokens.

A split's documents, each followed by the end of a document, are joined and cut
into sequences of T tokens. A record holds a sequence and the token after it,
so that each token of the split is predicted once; the last tokens, fewer than
T, are left out.
"""

import array
from collections import abc
from typing import NamedTuple

import numpy as np

from slim import errors
from slim.datasets.records import features
from slim.datasets.records import sharding
from slim.datasets.records import text_facts
from slim.datasets.text import documents
from slim.datasets.text import vocabulary

NAME = 'text'
TOKENS = 'text/tokens'

_SEQUENCES_PER_CALL = 1000
_TOKENS_PER_SUM = 2**20


class TextLayout(NamedTuple):
  """How to convert a text.

  Attributes:
    tokenizer: `vocabulary.BYTES` or `vocabulary.BPE`.
    vocabulary_size: largest number of tokens of `vocabulary.BPE`.
    sequence_length: T, tokens of a sequence, >= 1.
    train_shards: number of files of the training split; the others have one.
  """

  tokenizer: str = vocabulary.BYTES
  vocabulary_size: int = 4096
  sequence_length: int = 256
  train_shards: int = 2


def plan(
  corpus: documents.Corpus, layout: TextLayout
) -> sharding.ConversionPlan:
  """Plans the shards of a corpus.

  Memory holds the text, its tokens (2 bytes each), and all that the tokenizer
  makes of one document.

  Returns:
    The argument of `slim.datasets.records.sharding.write`.

  Raises:
    slim.errors.DataError: a number is out of its range, the text is too short
      or is no UTF-8.
  """
  length = layout.sequence_length
  if length < 1:
    raise errors.DataError(
      f'sequence_length: expected 1 or more; received {length}. Use 256, for '
      'example.'
    )
  texts = documents.split(corpus.documents)
  known = vocabulary.train(
    layout.tokenizer, layout.vocabulary_size, texts['train']
  )
  tokens = {name: _join(known, text) for name, text in texts.items()}
  numbers = {name: (len(t) - 1) // length for name, t in tokens.items()}
  num_bytes = {
    name: _sum_lengths(known, t[1 : numbers[name] * length + 1])
    for name, t in tokens.items()
  }
  _check_sizes(corpus, num_bytes, length)
  facts = text_facts.TextFacts(
    digest=corpus.digest,
    sequence_length=length,
    num_bytes=num_bytes,
    tokenizer=known.description,
  )
  shards = {name: 1 for name in texts} | {'train': layout.train_shards}
  return sharding.ConversionPlan(
    dataset=NAME,
    class_names=(*(f'token {i}' for i in range(known.end)), 'end of document'),
    splits=tuple(
      sharding.make_split(
        name, sharding.file_names(name, shards[name]), numbers[name]
      )
      for name in texts
    ),
    encode=_encoder(tokens, length),
    source=corpus.source,
    identity=repr((facts.digest, length, facts.tokenizer)),
    items_per_call=_SEQUENCES_PER_CALL,
    text=facts,
  )


def _join(
  known: vocabulary.Vocabulary, texts: abc.Sequence[bytes]
) -> np.ndarray:
  """Returns the tokens of a split, uint16 [n], each document with its end."""
  # Grows in place, so memory never holds the tokens twice.
  tokens = array.array('H')
  for text in texts:
    tokens.frombytes(known.encode(text).tobytes())
    tokens.append(known.end)
  return np.frombuffer(tokens, np.uint16) if tokens else np.zeros(0, np.uint16)


def _sum_lengths(known: vocabulary.Vocabulary, tokens: np.ndarray) -> int:
  """Returns the number of bytes of tokens; the lengths take 8 bytes each."""
  return sum(
    int(known.lengths[tokens[i : i + _TOKENS_PER_SUM]].sum())
    for i in range(0, len(tokens), _TOKENS_PER_SUM)
  )


def _check_sizes(
  corpus: documents.Corpus, num_bytes: abc.Mapping[str, int], length: int
) -> None:
  # Without bytes: no sequence, or all of its tokens are ends of documents.
  for name, number in num_bytes.items():
    if number < 1:
      raise errors.DataError(
        f'{corpus.source}: expected a text whose {documents.SPLITS[name]} % '
        f'for {name} has more than {length} tokens; received '
        f'{sum(map(len, corpus.documents))} bytes in all. Give more text, or a '
        'smaller --sequence_length.'
      )


def _encoder(
  tokens: abc.Mapping[str, np.ndarray], length: int
) -> abc.Callable[[abc.Sequence[sharding.ExampleIndex]], list[bytes]]:
  def encode(indices: abc.Sequence[sharding.ExampleIndex]) -> list[bytes]:
    return [
      features.serialize(
        {
          TOKENS: features.bytes_feature(
            tokens[split][number * length : (number + 1) * length + 1]
            .astype('<u2')
            .tobytes()
          )
        }
      )
      for split, number in indices
    ]

  return encode
