"""Canonical, length-limited Huffman codes of five trits, for 63 densities.

A symbol is the base-3 number of five trits, 0 to 242. Codes are nonzero with
probability p, and both signs are equally likely. The probability of a symbol
then depends only on its number of zero trits. Table q is optimal for
p = q / 64. All arithmetic is on integers and ties are broken by the symbol, so
that encoder and decoder compute the same tables in any language. A payload
contains only q.
"""

import functools
from typing import NamedTuple

import numpy as np

TRITS = 5
SYMBOLS = 3**TRITS
# Bits of the longest code word. 16 bits would save 0.0001 bits per element at
# p = 0.32 and 0.005 at p = 0.05, with a decoder table 16 times larger.
LONGEST = 12
# Finer steps of the density save nothing: at p = 0.32 a step costs 0.0002.
STEPS = 64


class Tables(NamedTuple):
  """The tables of all densities, one row for every q; row 0 is not used.

  Attributes:
    lengths: int32 [64, 243], bits of each symbol's code word.
    values: int32 [64, 243], the code words.
    ends: int32 [64, 12], column l - 1: the smallest 12-bit number that begins
      with no code word of l bits or fewer.
    bases: int32 [64, 12], column l - 1: offset from the first l bits of such a
      number, if they are a code word, to its index in `symbols`.
    symbols: int32 [64, 243], sorted by length and then by symbol.
  """

  lengths: np.ndarray
  values: np.ndarray
  ends: np.ndarray
  bases: np.ndarray
  symbols: np.ndarray


@functools.cache
def tables() -> Tables:
  """Computes the tables of all densities."""
  rows = [_canonical(_lengths(q)) for q in range(1, STEPS)]
  unused = Tables(*(np.zeros_like(field) for field in rows[0]))
  return Tables(*map(np.stack, zip(unused, *rows, strict=True)))


def mean_length(density: float, step: int) -> float:
  """Returns the mean bits per symbol of table `step` at a density."""
  nonzero = nonzero_trits()
  chance = (density / 2) ** nonzero * (1 - density) ** (TRITS - nonzero)
  return float(chance @ tables().lengths[step])


def nonzero_trits() -> np.ndarray:
  """Counts the trits of each symbol that encode -1 or +1, int64 [243]."""
  symbols = np.arange(SYMBOLS)
  return sum((symbols // 3**digit % 3 != 1).astype(int) for digit in range(5))


def _lengths(step: int) -> np.ndarray:
  """Computes the optimal code lengths of at most LONGEST bits, int32 [243].

  Package-merge: Larmore and Hirschberg, "A fast algorithm for optimal
  length-limited Huffman codes", JACM 37 (1990). Of each merged list, only
  whether an entry is a leaf or a package is used.
  """
  weights = [
    step**nonzero * (2 * (STEPS - step)) ** (TRITS - nonzero)
    for nonzero in nonzero_trits().tolist()
  ]
  order = sorted(range(SYMBOLS), key=lambda symbol: (weights[symbol], symbol))
  leaves = [(weights[symbol], 0) for symbol in order]
  merged: list[tuple[int, int]] = []
  rounds: list[list[tuple[int, int]]] = []
  for _ in range(LONGEST):
    pairs = zip(merged[::2], merged[1::2], strict=False)
    packages = [(one[0] + two[0], 1) for one, two in pairs]
    # Leaves come before packages of equal weight.
    merged = sorted(leaves + packages)
    rounds.append(merged)
  lengths = np.zeros(SYMBOLS, np.int32)
  taken = 2 * (SYMBOLS - 1)
  for merged in reversed(rounds):
    count = sum(package for _, package in merged[:taken])
    # The leaves among them are the lightest; each lengthens its code word.
    lengths[order[: taken - count]] += 1
    taken = 2 * count
  return lengths


def _canonical(lengths: np.ndarray) -> Tables:
  """Returns the row of `Tables` for code words of these lengths."""
  symbols = np.argsort(lengths, kind='stable').astype(np.int32)
  values = np.zeros(SYMBOLS, np.int32)
  ends, bases = np.zeros((2, LONGEST), np.int32)
  code, index = 0, 0
  for length in range(1, LONGEST + 1):
    code *= 2
    count = int(np.count_nonzero(lengths == length))
    values[symbols[index : index + count]] = code + np.arange(count)
    bases[length - 1] = index - code
    code, index = code + count, index + count
    ends[length - 1] = code << (LONGEST - length)
  return Tables(lengths, values, ends, bases, symbols)
