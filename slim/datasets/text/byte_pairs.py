"""Tokenizers of byte pairs, by the library `tokenizers`."""

import json
from typing import TYPE_CHECKING
from typing import Any

from slim import errors

if TYPE_CHECKING:
  import tokenizers

# Tokens are stored in 16 bits.
MOST_TOKENS = 2**16
# The bytes and the end of a document.
FEWEST_TOKENS = 257


def tokenizer_of(model: 'tokenizers.models.BPE') -> 'tokenizers.Tokenizer':
  """Makes a tokenizer of bytes with the pairs of a model."""
  import tokenizers  # optional

  made = tokenizers.Tokenizer(model)
  made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(
    add_prefix_space=False
  )
  made.decoder = tokenizers.decoders.ByteLevel()
  return made


def alphabet() -> list[str]:
  """Returns the letters that stand for the 256 bytes."""
  import tokenizers  # optional

  return sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())


def read(description: str) -> 'tokenizers.Tokenizer':
  """Makes a tokenizer from its description, which may be hostile.

  Only the pairs are taken from it. The library never parses it: it would take
  components that `tokenizer_of` does not use, and ends the process for some.

  Args:
    description: JSON of the library.

  Raises:
    slim.errors.DataError: `tokenizer_of` makes no such tokenizer.
    ModuleNotFoundError: the package tokenizers is missing.
  """
  import tokenizers  # optional

  try:
    given = json.loads(description)
    tokens, merges = _pairs(given['model'])
    made = tokenizer_of(tokenizers.models.BPE(tokens, merges))
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
  return made


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
  if not set(alphabet()) <= tokens.keys():
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
  named = {*alphabet(), *map(''.join, merges)}
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
