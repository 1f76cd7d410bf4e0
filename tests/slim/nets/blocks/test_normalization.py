import numpy as np
import pytest
import tensorflow as tf

from slim.nets.blocks import normalization


@pytest.mark.parametrize('dtype', ['bfloat16', 'float16'])
def test_sixteen_bits_give_the_rounded_result_of_float32(dtype):
  numbers = {'depth_radius': 2, 'bias': 2.0, 'alpha': 1e-4, 'beta': 0.75}
  layer = normalization.LocalResponseNormalization(**numbers, dtype=dtype)
  # Squares of 1000 are beyond float16.
  values = np.random.default_rng(0).uniform(500, 1000, [1, 2, 2, 8])
  images = tf.cast(values, dtype)
  exact = normalization.LocalResponseNormalization(**numbers)(
    tf.cast(images, tf.float32)
  )
  result = layer(images)
  assert result.dtype == dtype
  np.testing.assert_array_equal(
    tf.cast(result, tf.float32), tf.cast(tf.cast(exact, dtype), tf.float32)
  )
