"""Timing on an accelerator: many launches, then one synchronization.

A loop inside a `tf.function` costs an accelerator some 140 microseconds a turn,
more than a copy of 64 MB takes. Launches from Python cost as much, but they run
ahead of the device: the device works without pause if one launch takes it
longer than the host needs for the next. Use sizes beyond the device's cache.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence

import tensorflow as tf

from terngrad.codec.stages import tracing
from terngrad.measure import timing

# Makes a `timing.Repeatable` from work and its arguments.
Repeat = Callable[..., timing.Repeatable]


def repeatable(
  device: str,
  work: Callable[..., Sequence[tf.Tensor]],
  *arguments: tf.Tensor,
) -> timing.Repeatable:
  """Returns a function that launches work on a device, then waits for it.

  The function takes the number of launches, and returns the results of the
  last.

  Args:
    device: name of the device.
    work: takes the index of the repetition, int32 [], and the arguments.
    *arguments: arguments of `work`, copied to the device once.
  """
  with tf.device(device):
    placed = [tf.identity(argument) for argument in arguments]
    # Trace here, see `timing.repeatable`.
    traced = tracing.function(work).get_concrete_function(
      tf.constant(0), *placed
    )

  def launch(times: int) -> Sequence[tf.Tensor]:
    results: Sequence[tf.Tensor] = ()
    for number in range(times):
      results = traced(tf.constant(number), *placed)
    wait()
    return results

  return launch


def memory_copy(device: str, num_elements: int) -> timing.Repeatable:
  """Returns a function that copies float32 [num_elements] within a device."""
  with tf.device(device):
    source = tf.ones([num_elements])
  return repeatable(device, lambda i, x: [tf.raw_ops.DeepCopy(x=x)], source)


def empty(device: str) -> timing.Repeatable:
  """Returns a function that does almost nothing: the cost of a launch."""
  with tf.device(device):
    one = tf.ones([1])
  return repeatable(device, lambda i, x: [x + 1.0], one)


def wait() -> None:
  """Waits until all devices have finished all work."""
  tf.test.experimental.sync_devices()


def as_floats(tensors: Iterable[tf.Tensor]) -> list[tf.Tensor]:
  """Reinterprets int32 tensors as float32, which TensorFlow keeps on devices.

  It keeps int32 arguments and results of functions in the host's memory.
  """
  return [
    tf.bitcast(one, tf.float32) if one.dtype == tf.int32 else one
    for one in tensors
  ]
