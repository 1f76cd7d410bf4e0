"""Of messages of varying length only what is used travels."""

import numpy as np
import pytest
import tensorflow as tf

from terngrad.cluster import spec
from terngrad.codec import method as methods
from terngrad.codec.stages import huffman
from terngrad.exchange import gathering
from terngrad.exchange import group

FORM = huffman.huffman243()
LONG = methods.code_sum(FORM, 200_003, 1)
SHORT = methods.code_sum(FORM, 57, 1)


def move(messages, rows):
  alone = group.Group(spec.make({'worker': ['127.0.0.1:1']}, 'worker', 0), 1)
  return gathering.move(alone, messages, rows)


@pytest.mark.parametrize('used', [1, 900, 5000, LONG.num_words])
def test_the_longest_message_decides_how_many_words_are_sent(used):
  rows = np.zeros([2, LONG.num_words], np.int32)
  rows[:, 0] = 1, used
  rows[1, 1:used] = 7
  moved = move([LONG], tf.constant(rows))
  assert not moved.fixed
  ((piece,),) = moved.variable
  lengths = gathering.lengths(LONG.num_words)
  assert piece.shape[1] == min(n for n in lengths if n >= used)
  (received,) = gathering.receive([LONG], moved)
  np.testing.assert_array_equal(received.parts[0], rows)


def test_a_damaged_first_word_sends_no_more_than_the_message():
  rows = tf.fill([1, LONG.num_words], -1)
  ((piece,),) = move([LONG], rows).variable
  np.testing.assert_array_equal(piece, rows)


def test_short_messages_are_sent_with_those_of_fixed_length():
  messages = [methods.gathered(5), LONG, SHORT]
  words = sum(message.num_words for message in messages)
  rows = tf.reshape(tf.range(2 * words), [2, words])
  moved = move(messages, rows)
  assert [t.shape[1] for t in moved.fixed] == [5 + SHORT.num_words]
  assert len(moved.variable) == 1


@pytest.mark.parametrize('sizes', [[7], [7, 5]])
def test_messages_of_fixed_length_are_sent_as_one_tensor(sizes):
  fixed = [methods.gathered(size) for size in sizes]
  messages = [fixed[0], LONG, *fixed[1:]]
  rows = np.arange(2 * sum(m.num_words for m in messages), dtype=np.int32)
  rows = rows.reshape([2, -1])
  rows[:, 7] = 1, 900  # used of what varies
  moved = move(messages, tf.constant(rows))
  (piece,) = moved.fixed
  assert piece.shape[1] == sum(sizes)
  received = gathering.receive(messages, moved)
  np.testing.assert_array_equal(received[0].parts[0], rows[:, :7])
  if len(sizes) > 1:
    np.testing.assert_array_equal(received[2].parts[0], rows[:, -5:])


def test_messages_may_span_several_pieces():
  messages = [methods.gathered(size) for size in (4, 3, 5)]
  rows = np.arange(24, dtype=np.int32).reshape([2, 12])
  pieces = [tf.constant(part) for part in np.split(rows, [5, 10], axis=1)]
  found = gathering.receive(messages, gathering.Gathered(pieces, []))
  for payloads, expected in zip(
    found, np.split(rows, [4, 7], axis=1), strict=True
  ):
    np.testing.assert_array_equal(payloads.parts[0], expected)
