"""How what is summed is cut, and what holds a sum; the rest is conformance."""

import pytest
import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.codec.stages import float_words
from terngrad.codec.stages import packing
from terngrad.exchange import group
from terngrad.exchange import sums


def reduction(message, processes, nodes=1, piece=100):
  joined = group.Group.from_strategy(processes, 0)
  joined.piece = piece
  return sums.Reduction(message, joined, nodes * processes)


@pytest.mark.parametrize(
  ('words', 'processes', 'nodes', 'expected'),
  [
    (199, 3, 1, [199]),
    (200, 3, 1, [102, 98]),
    (100, 3, 2, [51, 49]),
    (204, 3, 1, [102, 102]),
    (2000, 2, 1, [126] * 15 + [110]),
  ],
)
def test_only_the_last_piece_is_padded(words, processes, nodes, expected):
  whole = reduction(methods.float_sum(words), processes, nodes)
  pieces = sums._pieces(whole, nodes)
  assert [piece.num_words for piece in pieces] == expected
  assert sum(piece.num_elements for piece in pieces) == words
  assert {piece.processes for piece in pieces} == {processes}


def test_a_piece_of_float16_has_two_elements_per_word():
  form = float_words.float16_words()
  message = methods.Message(methods.SUM, 300, 600, form)
  pieces = sums._pieces(reduction(message, 2), 1)
  assert [(p.num_words, p.num_elements) for p in pieces] == [(100, 200)] * 3


@pytest.mark.parametrize(
  ('workers', 'dtype'), [(1, tf.int8), (127, tf.int8), (128, tf.int32)]
)
def test_sums_of_codes_fit_their_type(workers, dtype):
  message = methods.code_sum(packing.base3(), 100, 1)
  assert message.dtype_of_sums(workers) == dtype
