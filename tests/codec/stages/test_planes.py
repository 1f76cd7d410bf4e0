"""Values of variables and of groups, one for each element."""

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
