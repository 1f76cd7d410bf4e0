"""Words that nobody uses stay behind, and come back as zeros."""

import numpy as np
import pytest
import tensorflow as tf

from terngrad.codec import method
from terngrad.codec import used_words
from terngrad.codec.stages import bitmap
from terngrad.codec.stages import tracing

VARYING = method.code_sum(bitmap.bitmap_sign(), 320, 1)
FIXED = method.gathered(5)


def rows(used):
  """Payloads of a device's workers, of `VARYING` after `FIXED`."""
  found = np.zeros([len(used), 5 + VARYING.num_words], np.int32)
  found[:, :5] = 7
  for row, count in zip(found, used, strict=True):
    row[5 : 5 + count] = 9
    row[5] = count
  return tf.constant(found)


@pytest.mark.parametrize('used', [(1,), (13, 11), (VARYING.num_words, 3)])
def test_trimmed_words_are_restored(used):
  messages = [FIXED, VARYING]
  whole = rows(used)

  @tracing.function
  def round_trip(words):
    fixed, varying = used_words.cut(messages, words)
    back = used_words.join(messages, [fixed, varying])
    assert back.shape == words.shape
    return fixed, varying, back

  fixed, varying, back = round_trip(whole)
  assert fixed.shape[1] == 5
  assert varying.shape[1] == max(used)
  np.testing.assert_array_equal(back, whole)


def test_messages_of_fixed_length_are_sent_as_one_tensor():
  words = tf.ones([2, 10], tf.int32)
  (together,) = used_words.cut([FIXED, FIXED], words)
  assert together is words
  assert used_words.join([FIXED, FIXED], [together]) is words


@pytest.mark.parametrize('claim', [-1, 2**31 - 1])
def test_corrupted_first_word_selects_at_most_the_payload(claim):
  words = tf.fill([1, VARYING.num_words], tf.constant(claim, tf.int32))
  found = used_words.trim(VARYING, words)
  assert found.shape[1] in (0, VARYING.num_words)
  assert used_words.restore(found, VARYING.num_words).shape == words.shape
  part = used_words.trim(VARYING, words, start=4, stop=9)
  assert part.shape[1] in (0, 5)
