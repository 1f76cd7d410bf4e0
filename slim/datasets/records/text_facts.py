"""What a manifest says about a data set of text."""

import hashlib
import math
from collections import abc
from typing import NamedTuple


class TextFacts(NamedTuple):
  """Facts about a data set of text.

  Attributes:
    digest: 16 hex digits, equal for equal text in any tokens.
    sequence_length: tokens of a sequence, >= 1.
    num_bytes: bytes of text that the sequences of each split predict.
    tokenizer: description of the vocabulary; '' for bytes.
  """

  digest: str
  sequence_length: int
  num_bytes: abc.Mapping[str, int]
  tokenizer: str = ''

  @property
  def tokenizer_digest(self) -> str:
    """16 hex digits, equal for equal vocabularies; 'bytes' for bytes."""
    if not self.tokenizer:
      return 'bytes'
    return hashlib.sha256(self.tokenizer.encode()).hexdigest()[:16]

  def bits_per_nat(self, split: str, num_examples: int) -> float:
    """Returns the bits a byte that a mean loss of 1 nat a token means.

    Args:
      split: name of the split.
      num_examples: number of its sequences.
    """
    tokens = num_examples * self.sequence_length
    return tokens / self.num_bytes[split] / math.log(2)
