"""Sequential map over the workers of one device.

It is a `tf.while_loop` with `parallel_iterations=1`. The activations of a
worker are freed before the next worker begins, and the graph has the same size
for 2 workers and for 64.
"""

from collections.abc import Callable
from collections.abc import Sequence
from typing import NamedTuple
from typing import TypeAlias

import tensorflow as tf


class SingleValue(NamedTuple):
  """One value with the interface of a `tf.TensorArray`, without a copy."""

  value: tf.Tensor | list[tf.Tensor]

  def read(self, index: tf.Tensor) -> tf.Tensor | list[tf.Tensor]:
    """Returns the value; `index` is ignored."""
    del index
    return self.value

  def stack(self) -> tf.Tensor:
    """Returns the value, a tensor, with a leading axis of 1; no copy."""
    return tf.expand_dims(self.value, 0)


class RunningSum(NamedTuple):
  """Declares a float32 result that is added over the workers, in their order.

  Attributes:
    shape: of each worker's value.
  """

  shape: Sequence[int]

  def start(self) -> tf.Tensor:
    """Returns the neutral element: -0.0 + x has the bits of x, even of -0.0."""
    return tf.fill(self.shape, -0.0)


_Result: TypeAlias = tf.Tensor | tf.TensorArray
Spec: TypeAlias = tuple[tf.DType, Sequence[int] | None] | RunningSum


def worker_map(
  device: str,
  workers: range,
  specs: Sequence[Spec],
  function: Callable[[tf.Tensor], Sequence[tf.Tensor | list[tf.Tensor]]],
) -> list[SingleValue | tf.TensorArray]:
  """Calls a function for each worker of a device, one after the other.

  Args:
    device: name of the device.
    workers: indices of the workers, not empty.
    specs: (dtype, shape) of each tensor that `function` returns, where a shape
      of None is any; or a `RunningSum` of a float32 tensor.
    function: takes a worker's index, int32 []; returns a list of tensors.

  Returns:
    For each of `specs` a `tf.TensorArray` over the workers; a `SingleValue` for
    one worker and for a `RunningSum`.
  """
  if len(workers) == 1:
    # Without a loop nothing is stacked, which would copy.
    with tf.device(device):
      return [
        SingleValue(value) for value in function(tf.constant(workers.start))
      ]

  def iterate(
    index: tf.Tensor, results: list[_Result]
  ) -> tuple[tf.Tensor, list[_Result]]:
    with tf.device(device):
      values = function(workers.start + index * workers.step)
      return index + 1, [
        one + value if tf.is_tensor(one) else one.write(index, value)
        for one, value in zip(results, values, strict=True)
      ]

  _, results = tf.while_loop(
    lambda index, _: index < len(workers),
    iterate,
    (tf.constant(0), [_start(spec, len(workers)) for spec in specs]),
    parallel_iterations=1,
  )
  return [SingleValue(one) if tf.is_tensor(one) else one for one in results]


def _start(spec: Spec, num_workers: int) -> _Result:
  """Returns a result before the first worker."""
  if isinstance(spec, RunningSum):
    return spec.start()
  dtype, shape = spec
  # Each round reads the carried gradients again.
  return tf.TensorArray(
    dtype, num_workers, clear_after_read=False, element_shape=shape
  )


def index_of(worker: tf.Tensor, workers: range) -> tf.Tensor:
  """Computes a worker's index among those of its device, int32 []."""
  return (worker - workers.start) // workers.step
