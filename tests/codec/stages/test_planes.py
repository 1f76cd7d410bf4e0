"""Planes of elements; values of variables and groups for their elements."""

import numpy as np
import pytest
import tensorflow as tf

from terngrad.codec.stages import planes


@pytest.mark.parametrize(
  ('sizes', 'group_size', 'expected'),
  [
    ([5], 2, [1, 1, 2, 2, 3]),
    ([5, 2, 3], 2, [1, 1, 2, 2, 3, 4, 4, 5, 5, 6]),
    ([1, 0, 2], 4, [1, 3, 3]),
  ],
)
def test_elements_get_the_value_of_their_group(sizes, group_size, expected):
  count = max(expected)
  values = tf.range(1.0, count + 1)
  spread = planes.spread_groups(values, sizes, group_size)
  np.testing.assert_array_equal(spread, expected)


@pytest.mark.parametrize(
  ('size', 'count', 'width', 'expected'),
  [
    (6, 3, 2, [[1, 2], [3, 4], [5, 6]]),
    (5, 3, 2, [[1, 2], [3, 4], [5, 0]]),
    (2, 4, 2, [[1, 2], [0, 0], [0, 0], [0, 0]]),
    (1, 3, 1, [[1], [0], [0]]),
    (3, 1, 4, [[1, 2, 3, 0]]),
    (0, 2, 0, [[], []]),
    (0, 2, 1, [[0], [0]]),
  ],
)
@pytest.mark.parametrize('dtype', [tf.int32, tf.float32])
def test_planes_are_the_elements_in_order_and_zeros(
  size, count, width, expected, dtype
):
  flat = tf.cast(tf.range(1, size + 1), dtype)
  rows = planes.split(flat, count, width)
  assert [row.dtype for row in rows] == [dtype] * count
  np.testing.assert_array_equal(
    np.stack(rows), np.reshape(expected, [count, width])
  )
