"""What is refused where a message, or a context, lacks what is asked for."""

import pytest
import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.codec.stages import packing

CODES = methods.code_sum(packing.base3(), 40, 1)


def test_code_sums_have_a_packing_and_levels():
  assert CODES.sum_packing is CODES.packing
  assert CODES.sum_levels == 1


def test_gathered_messages_have_no_sum_packing():
  with pytest.raises(ValueError, match='received gather of 3 words'):
    _ = methods.gathered(3).sum_packing


def test_payloads_of_gathered_messages_have_no_sum():
  words = methods.Payloads(
    [methods.Piece(0, [tf.zeros([2, 3], tf.int32)])], 0, 3
  )
  with pytest.raises(ValueError, match='Read it as Payloads'):
    words.sum(methods.gathered(3))


def test_floats_have_no_levels():
  with pytest.raises(ValueError, match='received sum of 5 floats'):
    _ = methods.float_sum(5).sum_levels


def test_scattered_messages_have_no_sum():
  scattered = methods.Scattered(tf.zeros([2, 1, 4], tf.int32))
  with pytest.raises(ValueError, match='Scattered: expected a message to sum'):
    scattered.sum(CODES)


def test_context_without_a_worker_has_no_key():
  zero = tf.constant(0, tf.int64)
  context = methods.Context(((4,),), 2, 0, 0, zero, zero)
  with pytest.raises(ValueError, match='Draw from common_key'):
    _ = context.worker_key
  key = tf.constant([1, 2, 3], tf.uint32)
  assert context._replace(key=key).worker_key is key
