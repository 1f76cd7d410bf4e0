"""What other processes are fed and told; conformance has the rest."""

import numpy as np
import tensorflow as tf

from terngrad.exchange import server


def test_a_feed_returns_batches_in_order_and_reports_the_mean_loss():
  kinds, shapes = (tf.float32, tf.int32), ([2, 3], [2])
  batches = tf.queue.FIFOQueue(4, list(kinds))
  progress = tf.queue.FIFOQueue(4, [tf.int64, tf.float32])
  feed = server.Feed(
    '/CPU:0', batches.queue_ref, progress.queue_ref, kinds, shapes
  )
  for number in range(2):
    batches.enqueue([tf.fill([2, 3], float(number)), tf.fill([2], number)])
  for number in range(2):
    images, labels = feed.next()
    assert (images.shape, labels.shape) == ((2, 3), (2,))
    np.testing.assert_array_equal(images, np.full([2, 3], number))
    np.testing.assert_array_equal(labels, [number, number])
  feed.report(tf.constant(6, tf.int64), [tf.constant([1.0, 2.0]), tf.ones([1])])
  step, loss = progress.dequeue()
  assert int(step) == 7
  np.testing.assert_allclose(loss, 4 / 3, rtol=1e-6)
