"""Functions that TensorFlow traces, and functions that XLA compiles.

They do not use AutoGraph, which rewrites every Python function that is called
while it traces, and takes longer than tracing. So loops and conditions on
tensors are written with `tf.while_loop` and `tf.cond`, except in functions that
users pass.
"""

import contextlib
import functools
from collections.abc import Callable
from typing import ParamSpec
from typing import TypeVar

import tensorflow as tf
from tensorflow.python.framework import ops
from tensorflow.python.ops import control_flow_util

_P = ParamSpec('_P')
_T = TypeVar('_T')

# Each takes a function, or is a decorator with options of `tf.function`.
function = functools.partial(tf.function, autograph=False)
compiled = functools.partial(function, jit_compile=True)
# For functions that users pass: with AutoGraph.
rewritten = tf.function


def on_host(program: Callable[_P, _T]) -> Callable[_P, _T]:
  """Returns a program that computes for GPUs on the CPU of their host.

  For long computations on a few numbers, which must be on the host too: XLA
  makes dozens of launches of them, and each takes longer than the CPU needs for
  all. On other devices the program stays where it is.
  """

  def call(*arguments: _P.args, **options: _P.kwargs) -> _T:
    with host():
      return program(*arguments, **options)

  return call


def host() -> contextlib.AbstractContextManager[object]:
  """Places operations of a GPU's program on the CPU of its host."""
  return tf.device('/CPU:0') if on_gpu() else contextlib.nullcontext()


def beside(
  tensor: tf.Tensor,
) -> contextlib.AbstractContextManager[object]:
  """Places operations where a tensor is.

  For operations on a few numbers that may be on the host: for an operation on a
  GPU TensorFlow would copy them, which waits until the GPU has done all work
  that was launched before.
  """
  return tf.device(tensor.device) if tensor.device else contextlib.nullcontext()


def on_gpu() -> bool:
  """Returns whether operations that are traced here are launched on a GPU.

  XLA chooses itself where a program that it compiles computes what.
  """
  scope = tf.DeviceSpec.from_string(tf.constant(0).device)
  return scope.device_type == 'GPU' and not is_compiled_by_xla()


def is_compiled_by_xla() -> bool:
  """Returns whether XLA compiles the function that is being traced."""
  return control_flow_util.GraphOrParentsInXlaContext(ops.get_default_graph())
