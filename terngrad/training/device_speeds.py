"""How fast the devices of a run are, for batches that are divided by it."""

import time
import timeit
from collections.abc import Callable
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from terngrad.step import passes
from terngrad.step import replicas
from terngrad.step import step as steps

_ROUNDS = 3
# Weights are multiples of it, so that devices of one kind mostly get as much.
_STEP = 0.05


def weights(
  training: steps.Training,
  shape: Sequence[int],
  clock: Callable[[], float] = time.perf_counter,
) -> list[float]:
  """Measures the devices of all processes, one after the other in each.

  A device's time is that of the fastest of a few passes forward and backward.

  Args:
    training: whose pass and replicas are taken.
    shape: [b, height, width, channels] of the images of a pass.
    clock: returns seconds.

  Returns:
    Examples a second as shares of those of the fastest device, one a device,
    process by process: multiples of 0.05, from 0.05 to 1.
  """
  seconds = [
    _seconds(training.node_pass, replica, shape, clock)
    for replica in training.replicas
  ]
  everyone = np.array([seconds], np.float32)
  if training.exchange.group is not None:
    gathered = training.exchange.group.all_gather_now(everyone.view(np.int32))
    everyone = gathered.view(np.float32)
  speeds = 1.0 / everyone.ravel().astype(float)
  shares = speeds / max(speeds)
  return [round(max(1, round(share / _STEP)) * _STEP, 2) for share in shares]


def _seconds(
  node_pass: passes.Pass,
  replica: replicas.Replica,
  shape: Sequence[int],
  clock: Callable[[], float],
) -> float:
  """The time of the fastest pass of a device."""

  @tf.function
  def take(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Runs all of the pass: a number of all gradients, float32 []."""
    with tf.device(replica.device):
      parameters, *held = (
        [tf.convert_to_tensor(v) for v in variables]
        for variables in (replica.trainable, replica.statistics, replica.frozen)
      )
      key = tf.zeros([2], tf.uint32)
      gradients, scores, _ = node_pass.gradients(
        parameters, sum(held, []), images, labels, key
      )
      return tf.add_n([scores[0], *(tf.reduce_sum(g) for g in gradients)])

  images, labels = tf.fill(shape, 0.5), tf.zeros(shape[:1], tf.int32)
  # The first one traces the pass, and fills caches.
  _, *times = timeit.repeat(
    lambda: take(images, labels).numpy(),
    timer=clock,
    repeat=1 + _ROUNDS,
    number=1,
  )
  return min(times)
