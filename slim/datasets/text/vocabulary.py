"""Vocabularies: the bytes, or byte pairs trained on a text.

Every vocabulary ends with a token for the end of a document.
"""

import abc
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING
from typing import Any

import numpy as np

from slim import errors

if TYPE_CHECKING:
  import tokenizers

BYTES = 'bytes'
BPE = 'bpe'
# Tokens are stored in 16 bits.
MOST_TOKENS = 2**16
# The bytes and the end of a document.
FEWEST_TOKENS = 257


class Vocabulary(abc.ABC):
  """Converts text to tokens and back.

  Attributes:
    size: number of tokens; the last one is the end of a document.
    lengths: int64 [size], bytes of text of each token; 0 for the end.
    description: text from which `load` makes an equal vocabulary; '' for the
      bytes.
  """

  description = ''

  def __init__(self, lengths: np.ndarray) -> None:
    """Adds the end of a document to tokens with these lengths in bytes."""
    self.lengths = np.append(lengths, 0).astype(np.int64)
    self.size = len(self.lengths)

  @property
  def end(self) -> int:
    """Returns the token of the end of a document."""
    return self.size - 1

  @abc.abstractmethod
  def encode(self, text: bytes) -> np.ndarray:
    """Returns the tokens of a text, uint16 [n].

    Raises:
      slim.errors.DataError: the vocabulary cannot represent the text.
    """

  @abc.abstractmethod
  def decode(self, tokens: Sequence[int]) -> str:
    """Returns the text of tokens; bytes that are no UTF-8 become U+FFFD."""


class ByteVocabulary(Vocabulary):
  """The 256 bytes; represents every file as it is."""

  def __init__(self) -> None:
    """Makes the vocabulary, which has no options."""
    super().__init__(np.ones(256))

  def encode(self, text: bytes) -> np.ndarray:
    """Returns the bytes of a text, uint16 [n]."""
    return np.frombuffer(text, np.uint8).astype(np.uint16)

  def decode(self, tokens: Sequence[int]) -> str:
    """Returns the text of bytes; other tokens are ignored."""
    return bytes(t for t in tokens if t < 256).decode(errors='replace')


class PairVocabulary(Vocabulary):
  """Byte pairs of the library `tokenizers`; represents UTF-8 text.

  References:
    Sennrich et al., Neural Machine Translation of Rare Words with Subword
    Units, https://arxiv.org/abs/1508.07909.
  """

  def __init__(self, tokenizer: 'tokenizers.Tokenizer') -> None:
    """Takes a tokenizer of bytes without special tokens."""
    self._tokenizer = tokenizer
    self.description = tokenizer.to_str()
    names = [
      tokenizer.id_to_token(i) for i in range(tokenizer.get_vocab_size())
    ]
    # A letter of a token's name is a byte.
    super().__init__(np.array([len(name or '') for name in names]))

  def encode(self, text: bytes) -> np.ndarray:
    """Returns the tokens of UTF-8 text, uint16 [n]."""
    found = self._tokenizer.encode(_as_utf8(text), add_special_tokens=False)
    return np.array(found.ids, np.uint16)

  def decode(self, tokens: Sequence[int]) -> str:
    """Returns the text of tokens; the end of a document is ignored."""
    known = [int(t) for t in tokens if t < self.end]
    return str(self._tokenizer.decode(known, skip_special_tokens=False))


def train(kind: str, size: int, documents: Sequence[bytes]) -> Vocabulary:
  """Makes the vocabulary of a kind; byte pairs are chosen on the documents.

  Args:
    kind: `BYTES` or `BPE`.
    size: largest number of tokens of `BPE`, with the end of a document.
    documents: contents.

  Raises:
    slim.errors.DataError: the kind or the size is invalid, or a document is no
      UTF-8.
    ModuleNotFoundError: `BPE` needs the package tokenizers.
  """
  errors.lookup({BYTES: 0, BPE: 0}, kind, 'tokenizer')
  if kind == BYTES:
    return ByteVocabulary()
  if not FEWEST_TOKENS <= size <= MOST_TOKENS:
    raise errors.DataError(
      f'vocabulary_size: expected from {FEWEST_TOKENS} to {MOST_TOKENS}; '
      f'received {size}. Use for example 4096.'
    )
  import tokenizers  # optional

  tokenizer = _tokenizer(tokenizers.models.BPE())
  trainer = tokenizers.trainers.BpeTrainer(
    vocab_size=size - 1,
    initial_alphabet=_alphabet(),
    show_progress=False,
  )
  tokenizer.train_from_iterator(map(_as_utf8, documents), trainer)
  return PairVocabulary(tokenizer)


def load(description: str) -> Vocabulary:
  """Makes a vocabulary from its `description`, which may be hostile.

  Only the pairs are taken from it. The library never parses it: it would take
  components that `train` does not use, and ends the process for some.

  Raises:
    slim.errors.DataError: `train` makes no such description.
    ModuleNotFoundError: the vocabulary needs the package tokenizers.
  """
  if not description:
    return ByteVocabulary()
  import tokenizers  # optional

  try:
    given = json.loads(description)
    tokens, merges = _pairs(given['model'])
    made = _tokenizer(tokenizers.models.BPE(tokens, merges))
    _check_components(given, json.loads(made.to_str()))
  except (
    AttributeError,
    KeyError,
    RecursionError,
    TypeError,
    ValueError,
  ) as error:
    raise errors.DataError(
      'tokenizer: expected byte pairs as terngrad convert text describes them; '
      f'received others: {error!s:.200}. Convert the text again.'
    ) from error
  return PairVocabulary(made)


def _tokenizer(model: 'tokenizers.models.BPE') -> 'tokenizers.Tokenizer':
  """Makes a tokenizer of bytes with the pairs of a model."""
  import tokenizers  # optional

  made = tokenizers.Tokenizer(model)
  made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(
    add_prefix_space=False
  )
  made.decoder = tokenizers.decoders.ByteLevel()
  return made


def _alphabet() -> list[str]:
  """Returns the letters that stand for the 256 bytes."""
  import tokenizers  # optional

  return sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())


def _pairs(model: dict[str, Any]) -> tuple[dict[str, int], list[Any]]:
  """Reads (token by name, pairs of names) and checks that they fit.

  Raises:
    ValueError: they do not.
  """
  tokens = model['vocab']
  # Before version 0.20 the library wrote a pair as one text.
  merges = [
    tuple(pair.split(' ') if isinstance(pair, str) else pair)
    for pair in model['merges']
  ]
  if not set(_alphabet()) <= tokens.keys():
    raise ValueError('a byte without token')
  if not FEWEST_TOKENS <= len(tokens) + 1 <= MOST_TOKENS:
    raise ValueError(f'{len(tokens)} tokens')
  numbers = list(tokens.values())
  if {type(n) for n in numbers} != {int} or sorted(numbers) != [
    *range(len(tokens))
  ]:
    raise ValueError('tokens that are not 0, 1, 2 and so on')
  for pair in merges:
    if len(pair) != 2 or not {*pair, ''.join(pair)} <= tokens.keys():
      raise ValueError(f'the pair {pair}')
  if len(set(merges)) != len(merges):
    raise ValueError('a pair twice')
  named = {*_alphabet(), *map(''.join, merges)}
  if tokens.keys() != named:
    raise ValueError('a token that is neither a byte nor a pair')
  return tokens, merges


def _check_components(given: dict[str, Any], made: dict[str, Any]) -> None:
  """Checks that nothing but pairs distinguishes two descriptions.

  Raises:
    ValueError: something else does.
  """
  for name, value in (made | made['model']).items():
    found = (given | given['model']).get(name, value)
    if name not in ('model', 'vocab', 'merges', 'version') and found != value:
      raise ValueError(f'{name}: {found!s:.80}')


def _as_utf8(text: bytes) -> str:
  try:
    return text.decode()
  except UnicodeDecodeError as error:
    around = text[max(error.start - 20, 0) : error.start + 20]
    raise errors.DataError(
      f'tokenizer: expected UTF-8 text for {BPE}; received byte '
      f'0x{text[error.start]:02x} near {around!r}. Repair or remove that '
      f'text, or use --tokenizer={BYTES}, which takes any bytes.'
    ) from error
