"""Vocabularies: the bytes, or byte pairs trained on a text.

Every vocabulary ends with a token for the end of a document.
"""

import abc
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from slim import errors
from slim.datasets.text import byte_pairs

if TYPE_CHECKING:
  import tokenizers

BYTES = 'bytes'
BPE = 'bpe'


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
  if not byte_pairs.FEWEST_TOKENS <= size <= byte_pairs.MOST_TOKENS:
    raise errors.DataError(
      f'vocabulary_size: expected from {byte_pairs.FEWEST_TOKENS} to '
      f'{byte_pairs.MOST_TOKENS}; received {size}. Use for example 4096.'
    )
  import tokenizers  # optional

  tokenizer = byte_pairs.tokenizer_of(tokenizers.models.BPE())
  trainer = tokenizers.trainers.BpeTrainer(
    vocab_size=size - 1,
    initial_alphabet=byte_pairs.alphabet(),
    show_progress=False,
  )
  tokenizer.train_from_iterator(map(_as_utf8, documents), trainer)
  return PairVocabulary(tokenizer)


def load(description: str) -> Vocabulary:
  """Makes a vocabulary from its `description`, which may be hostile.

  Raises:
    slim.errors.DataError: `train` makes no such description.
    ModuleNotFoundError: the vocabulary needs the package tokenizers.
  """
  if not description:
    return ByteVocabulary()
  return PairVocabulary(byte_pairs.read(description))


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
