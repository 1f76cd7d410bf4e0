"""Measures the speed of devices, to divide batches in proportion to it."""

import time
import timeit
from collections.abc import Callable
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from terngrad.codec.stages import tracing
from terngrad.step import passes
from terngrad.step import replicas
from terngrad.step import step as steps

_ROUNDS = 3
# Weights are multiples of this, so that equal devices mostly get equal weights.
_STEP = 0.05


def weights(
  training: steps.Training,
  shape: Sequence[int],
  clock: Callable[[], float] = time.perf_counter,
) -> list[float]:
  """Measures the relative speeds of the devices of all processes.

  The time of a device is the fastest of three forward and backward passes. A
  process measures its devices one after the other.

  Args:
    training: provides the pass, the replicas and the exchange.
    shape: [b, height, width, channels] of the images of a pass.
    clock: returns seconds.

  Returns:
    One weight per device, process by process: examples per second divided by
    those of the fastest device, rounded to multiples of 0.05, from 0.05 to 1.
  """
  seconds = [
    _seconds(training.node_pass, replica, shape, clock)
    for replica in training.replicas
  ]
  times = np.array([seconds], np.float32)
  if training.exchange.group is not None:
    gathered = training.exchange.group.all_gather_now(times.view(np.int32))
    times = gathered.view(np.float32)
  speeds = 1.0 / times.ravel().astype(float)
  shares = speeds / max(speeds)
  return [round(max(1, round(share / _STEP)) * _STEP, 2) for share in shares]


def _seconds(
  node_pass: passes.Pass,
  replica: replicas.Replica,
  shape: Sequence[int],
  clock: Callable[[], float],
) -> float:
  """Measures the seconds of a device's fastest pass."""

  @tracing.function
  def run_pass(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Runs one pass; the sum, float32 [], depends on every gradient."""
    with tf.device(replica.device):
      parameters, *others = (
        [tf.convert_to_tensor(v) for v in variables]
        for variables in (replica.trainable, replica.statistics, replica.frozen)
      )
      key = tf.zeros([2], tf.uint32)
      gradients, scores, _ = node_pass.gradients(
        parameters, sum(others, []), images, labels, key
      )
      return tf.add_n([scores[0], *(tf.reduce_sum(g) for g in gradients)])

  images, labels = tf.fill(shape, 0.5), tf.zeros(shape[:1], tf.int32)
  # The first call traces the pass and fills caches, so it does not count.
  _, *times = timeit.repeat(
    lambda: run_pass(images, labels).numpy(),
    timer=clock,
    repeat=1 + _ROUNDS,
    number=1,
  )
  return min(times)
