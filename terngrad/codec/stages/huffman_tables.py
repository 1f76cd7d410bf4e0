"""Canonical, length-limited Huffman codes of five trits, for 63 densities.

A symbol is the base-3 number of five trits, 0 to 242; with codes that are
not zero with probability p, each sign as often, its probability depends on
how many of its trits are zero alone. Table q is optimal for p = q / 64. All is
integer arithmetic with ties broken by the symbol, so that encoder and decoder
make the same tables in any language and a payload need only name q.
"""

import functools
from typing import NamedTuple

import numpy as np

TRITS = 5
SYMBOLS = 3**TRITS
# Of a code word, in bits. 16 would gain 0.0001 bits an element at p = 0.32 and
# 0.005 at p = 0.05, and make the decoder's lookup 16 times larger.
LONGEST = 12
# Finer steps of the density gain nothing: at p = 0.32 a step costs 0.0002.
STEPS = 64


class Tables(NamedTuple):
  """One row for every q; row 0 is not used.

  Attributes:
    lengths: int32 [64, 243], bits of each symbol's code word.
    values: int32 [64, 243], the code words.
    ends: int32 [64, 12], column l - 1: the least 12-bit number that begins
      with no code word of l bits or fewer.
    bases: int32 [64, 12], column l - 1: to be added to the first l bits of
      such a number, where they are a code word, for its place in `symbols`.
    symbols: int32 [64, 243], by length and then by symbol.
  """

  lengths: np.ndarray
  values: np.ndarray
  ends: np.ndarray
  bases: np.ndarray
  symbols: np.ndarray


@functools.cache
def tables() -> Tables:
  """All tables.

  Returns:
    A `Tables`.
  """
  rows = [_canonical(_lengths(q)) for q in range(1, STEPS)]
  unused = Tables(*(np.zeros_like(field) for field in rows[0]))
  return Tables(*map(np.stack, zip(unused, *rows, strict=True)))


def mean_length(density: float, step: int) -> float:
  """Mean bits of a symbol under table `step`, for codes of a density."""
  nonzero = nonzero_trits()
  chance = (density / 2) ** nonzero * (1 - density) ** (TRITS - nonzero)
  return float(chance @ tables().lengths[step])


def nonzero_trits() -> np.ndarray:
  """int64 [243]: how many trits of each symbol stand for -1 or +1."""
  symbols = np.arange(SYMBOLS)
  return sum((symbols // 3**place % 3 != 1).astype(int) for place in range(5))


def _lengths(step: int) -> np.ndarray:
  """int32 [243]: of an optimal code with words of at most LONGEST bits.

  Package-merge, told by what is a leaf alone: Larmore and Hirschberg, "A fast
  algorithm for optimal length-limited Huffman codes", JACM 37 (1990).
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
    # Of equal weights leaves come first.
    merged = sorted(leaves + packages)
    rounds.append(merged)
  lengths = np.zeros(SYMBOLS, np.int32)
  taken = 2 * (SYMBOLS - 1)
  for merged in reversed(rounds):
    count = sum(package for _, package in merged[:taken])
    # The leaves among them are the lightest; each makes its code word longer.
    lengths[order[: taken - count]] += 1
    taken = 2 * count
  return lengths


def _canonical(lengths: np.ndarray) -> Tables:
  """The row of `Tables` of code words of these lengths."""
  symbols = np.argsort(lengths, kind='stable').astype(np.int32)
  values = np.zeros(SYMBOLS, np.int32)
  ends, bases = np.zeros((2, LONGEST), np.int32)
  following, place = 0, 0
  for length in range(1, LONGEST + 1):
    following *= 2
    count = int(np.count_nonzero(lengths == length))
    values[symbols[place : place + count]] = following + np.arange(count)
    bases[length - 1] = place - following
    following, place = following + count, place + count
    ends[length - 1] = following << (LONGEST - length)
  return Tables(lengths, values, ends, bases, symbols)
