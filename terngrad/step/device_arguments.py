"""Arguments of programs that XLA compiles, on GPUs without waiting.

TensorFlow keeps integers in the memory of the host. It copies them to a GPU
only when the GPU has done all that was launched before. So a program with such
an argument would be launched after the step before has ended, and the GPU would
be idle meanwhile. `pack` copies them in the order of the GPU's work.
"""

from collections.abc import Sequence

import tensorflow as tf

from terngrad.codec.stages import tracing
from terngrad.native import gpu
from terngrad.native import ops

# Larger tensors are not copied at once.
_MOST_BYTES = 2**16
# Types that TensorFlow keeps on the host.
_HOST_TYPES = tf.int32, tf.uint32, tf.int64


def pack(arguments: Sequence[tf.Tensor]) -> list[tf.Tensor]:
  """Moves the arguments of a program to the current device.

  Args:
    arguments: tensors of any types. On a GPU integers, and float32 scalars, are
      expected on the host, and become float32 of the same bits on the GPU.

  Returns:
    The arguments in the same order; `unpack` restores their types.
  """
  if not (tracing.on_gpu() and gpu.available()):
    return list(arguments)
  return [
    ops.numbers_on_gpu(_bits(one)) if _is_moved(one) else one
    for one in arguments
  ]


def types_of(arguments: Sequence[tf.Tensor]) -> tuple[str, ...]:
  """Returns the names of the types of arguments, for `unpack`."""
  return tuple(one.dtype.name for one in arguments)


def unpack(
  packed: Sequence[tf.Tensor], types: Sequence[str]
) -> list[tf.Tensor]:
  """Restores the types of packed arguments, within the program.

  Args:
    packed: from `pack`.
    types: from `types_of`.
  """
  return [
    one if one.dtype == kind else tf.bitcast(one, kind)
    for one, kind in zip(packed, types, strict=True)
  ]


def _is_moved(argument: tf.Tensor) -> bool:
  is_on_host = argument.dtype in _HOST_TYPES or (
    argument.dtype == tf.float32 and argument.shape.rank == 0
  )
  count = argument.shape.num_elements()
  if count is None or not is_on_host:
    return False
  return 0 < count * argument.dtype.size <= _MOST_BYTES


def _bits(numbers: tf.Tensor) -> tf.Tensor:
  """Returns the bits of numbers on the host as float32."""
  with tf.device('/CPU:0'):
    if numbers.dtype == tf.float32:
      return tf.identity(numbers)
    return tf.bitcast(numbers, tf.float32)
