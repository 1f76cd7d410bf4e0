"""What is fuzzed: a parser of bytes, and what it may do with them."""

from collections.abc import Callable
from collections.abc import Sequence
from typing import NamedTuple


class Difference(AssertionError):
  """Two decoders do not agree."""


def _as_it_is(random, content):
  del random
  return content


class Target(NamedTuple):
  """A parser.

  Attributes:
    parse: takes (bytes, an empty folder that stays between calls); raises what
      it refuses inputs with, and `Difference`.
    seeds: bytes that are accepted.
    refusals: classes of the errors that the parser is documented to raise.
    modules: dotted names of the modules whose lines guide the search.
    words: bytes that mean something to it.
    repair: takes (`random.Random`, bytes); returns them with checksums that fit
      again, so that what lies behind these is reached. Used for one input of
      two.
    mebibytes: by which an input may make the process grow.
    seconds: of processor time that an input may take.
  """

  parse: Callable
  seeds: Sequence[bytes]
  refusals: tuple
  modules: Sequence[str]
  words: Sequence[bytes] = ()
  repair: Callable = _as_it_is
  mebibytes: int = 64
  seconds: float = 5.0
