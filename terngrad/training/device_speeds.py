"""How fast the devices of a run are, for batches that are divided by it."""

import time

import numpy as np
import tensorflow as tf

from terngrad.step import passes
from terngrad.step import replicas

_ROUNDS = 3
# Weights are multiples of it, so that devices of one kind mostly get as much.
_STEP = 0.05


def weights(training, shape, clock=time.perf_counter):
  """Measures the devices of all processes, one after the other in each.

  A device's time is that of the fastest of a few passes forward and backward.

  Args:
    training: `step.Training`.
    shape: [b, height, width, channels] of the images of a pass.
    clock: returns seconds.

  Returns:
    List of float, examples a second as shares of those of the fastest device,
    one a device, process by process: multiples of 0.05, from 0.05 to 1.
  """
  images = tf.fill(shape, 0.5)
  labels = tf.zeros(shape[:1], tf.int32)
  seconds = []
  for replica in training.replicas:
    timed = _TimedPass(training.node_pass, replica)
    times = []
    # The first one traces the pass, and fills caches.
    for _ in range(1 + _ROUNDS):
      begin = clock()
      timed.take(images, labels).numpy()
      times.append(clock() - begin)
    seconds.append(min(times[1:]))
  everyone = np.array([seconds], np.float32)
  if training.exchange.group is not None:
    gathered = training.exchange.group.all_gather_now(everyone.view(np.int32))
    everyone = gathered.view(np.float32)
  return relative(1.0 / everyone.ravel().astype(float))


def relative(speeds):
  """Speeds as shares of the highest, rounded; see `weights`."""
  highest = max(speeds)
  return [
    round(max(1, round(speed / highest / _STEP)) * _STEP, 2) for speed in speeds
  ]


class _TimedPass:
  """A pass of one device."""

  def __init__(self, node_pass: passes.Pass, replica: replicas.Replica) -> None:
    """Takes the pass and where it runs."""
    self._node_pass = node_pass
    self._replica = replica

  @tf.function
  def take(self, images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Runs all of the pass: a number of all gradients, float32 []."""
    replica = self._replica
    with tf.device(replica.device):
      parameters, *held = (
        [tf.convert_to_tensor(v) for v in variables]
        for variables in (replica.trainable, replica.statistics, replica.frozen)
      )
      key = tf.zeros([2], tf.uint32)
      gradients, scores, _ = self._node_pass.gradients(
        parameters, sum(held, []), images, labels, key
      )
      return tf.add_n([scores[0], *(tf.reduce_sum(g) for g in gradients)])
