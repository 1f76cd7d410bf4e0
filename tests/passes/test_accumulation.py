import functools

import numpy as np
import tensorflow as tf

from terngrad.codec.stages import random_bits
from terngrad.passes import accumulation
from terngrad.step import model_variables
from terngrad.step import passes
from tests.step import small


def both_passes(build, count):
  """(what a node of 8 examples computes at once, in `count` parts)."""
  model = build()
  plan = model_variables.variables_of(model)
  whole = passes.ModelPass(model, plan)
  images, labels = small.batch_of(0, [8])
  arguments = (
    [tf.convert_to_tensor(v.value) for v in plan.trainable],
    [tf.convert_to_tensor(v.value) for v in plan.statistics],
    images,
    labels,
    random_bits.worker_key(1, tf.constant(0, tf.int64), 0),
  )
  parts = accumulation.accumulate(whole, count)
  return whole.gradients(*arguments), parts.gradients(*arguments)


def test_the_mean_over_parts_is_the_gradient_of_the_share():
  (whole, loss, _), (parts, mean_loss, _) = both_passes(small.dense_net, 4)
  np.testing.assert_allclose(mean_loss, loss, rtol=1e-6)
  for expected, received in zip(whole, parts, strict=True):
    # Sums of 8 terms below 4 in another order.
    np.testing.assert_allclose(received, expected, rtol=1e-5, atol=1e-6)


def test_statistics_move_once_by_the_mean_over_the_parts():
  (_, _, whole), (_, _, parts) = both_passes(small.conv_net, 2)
  mean, variance = whole
  # Means of equal halves average to the mean; variances only to less.
  np.testing.assert_allclose(parts[0], mean, rtol=1e-4, atol=1e-7)
  assert (np.asarray(parts[1]) < np.asarray(variance)).all()
  assert (np.asarray(parts[1]) > 0.99 * 1.0).all()


def test_each_part_drops_other_units():
  build = functools.partial(small.conv_net, dropout=0.5)
  model = build()
  plan = model_variables.variables_of(model)
  seen = []

  class Noting(passes.Pass):
    def gradients(self, parameters, held, images, labels, key, scale=None):
      del labels, scale
      seen.append(key)
      scores = tf.fill([passes.NUM_SCORES], tf.reduce_sum(images))
      return [tf.zeros_like(p) for p in parameters], scores, held

  parts = accumulation.accumulate(Noting(len(plan.statistics)), 2)
  images, labels = small.batch_of(0, [4])
  key = tf.constant([1, 2], tf.uint32)
  held = [tf.convert_to_tensor(v.value) for v in plan.statistics]
  parameters = [tf.convert_to_tensor(v.value) for v in plan.trainable]
  parts.gradients(parameters, held, images, labels, key)
  first, second = (tuple(k.numpy()) for k in seen)
  assert len({first, second, (1, 2)}) == 3
