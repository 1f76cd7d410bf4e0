"""Moving statistics travel as one vector, and models may have none."""

import numpy as np
import tensorflow as tf

from terngrad.reduce import metadata


def test_split_inverts_flat():
  values = [tf.constant([[1.0, 2.0]]), tf.constant(3.0), tf.constant([4.0])]
  joined = metadata.flat(values)
  np.testing.assert_array_equal(joined, [1, 2, 3, 4])
  for found, value in zip(
    metadata.split(joined, [v.shape for v in values]), values, strict=True
  ):
    np.testing.assert_array_equal(found, value)


def test_no_statistics_are_nothing():
  assert metadata.flat([]) is None
  assert metadata.split(tf.zeros([0]), []) == []
