"""Timing on an accelerator: many launches, then one synchronization.

A loop inside a `tf.function` costs an accelerator some 140 microseconds a turn,
more than a copy of 64 MB takes. Calls from Python cost as much, so a call
repeats the work several times, without a loop. Calls run ahead of the device:
it works without pause if the work takes it longer than the host needs to launch
it. Use sizes beyond the device's cache.
"""

import functools
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence

import tensorflow as tf

from terngrad.codec.stages import tracing
from terngrad.measure import timing

# Repetitions in one call.
_TOGETHER = 8
# Makes a `timing.Repeatable` from work and its arguments.
Repeat = Callable[..., timing.Repeatable]


def repeatable(
  device: str,
  work: Callable[..., Sequence[tf.Tensor]],
  *arguments: tf.Tensor,
  together: int = _TOGETHER,
) -> timing.Repeatable:
  """Returns a function that launches work on a device, then waits for it.

  The function takes the number of repetitions, and returns the results of the
  last.

  Args:
    device: name of the device.
    work: takes the index of the repetition, int32 [], and the arguments.
    *arguments: arguments of `work`, copied to the device once.
    together: repetitions in one call.
  """
  with tf.device(device):
    placed = [tf.identity(argument) for argument in arguments]

  @functools.cache
  def traced(count: int) -> Callable[..., list[Sequence[tf.Tensor]]]:
    # Trace with concrete arguments, see `timing.repeatable`.
    repeated = tracing.function(functools.partial(_repeat, work, count))
    with tf.device(device):
      return repeated.get_concrete_function(tf.constant(0), *placed)

  def launch(times: int) -> Sequence[tf.Tensor]:
    results: Sequence[tf.Tensor] = ()
    number = 0
    while number < times:
      count = together if times - number >= together else 1
      results, _ = traced(count)(tf.constant(number), *placed)
      number += count
    wait()
    return results

  return launch


def _repeat(
  work: Callable[..., Sequence[tf.Tensor]],
  count: int,
  first: tf.Tensor,
  *arguments: tf.Tensor,
) -> list[Sequence[tf.Tensor]]:
  """Returns the results of the last repetition, and elements of the others.

  TensorFlow leaves out operations of which nobody reads a result.
  """
  results: Sequence[tf.Tensor] = ()
  read = []
  for number in range(count):
    # In turn, so that none is left out as equal to another.
    with tf.control_dependencies(results):
      results = work(first + number, *arguments)
    if number < count - 1:
      # One result of each operation; constants have none.
      made = {id(r.op): r for r in results if tf.is_symbolic_tensor(r)}
      read += [tf.reshape(result, [-1])[:1] for result in made.values()]
  return [results, read]


def memory_copy(device: str, num_elements: int) -> timing.Repeatable:
  """Returns a function that copies float32 [num_elements] within a device."""
  with tf.device(device):
    source = tf.ones([num_elements])
  return repeatable(device, lambda i, x: [tf.raw_ops.DeepCopy(x=x)], source)


def empty(device: str) -> timing.Repeatable:
  """Returns a function that does almost nothing: the cost of a call."""
  with tf.device(device):
    one = tf.ones([1])
  return repeatable(device, lambda i, x: [x + 1.0], one, together=1)


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
