"""Programs of TensorFlow that run eagerly: nothing is traced or compiled."""

import contextlib

import tensorflow as tf

from terngrad.step import fused_updates


@contextlib.contextmanager
def functions():
  """Runs every `tf.function` operation by operation.

  A few steps of a small net take a fifth of the time then. The trial of the
  fused kernels stays compiled, because the process keeps its result and it
  compares them with the compiled update.
  """
  find = fused_updates.kernel_roundings

  def find_compiled(*arguments):
    tf.config.run_functions_eagerly(False)
    try:
      return find(*arguments)
    finally:
      tf.config.run_functions_eagerly(True)

  fused_updates.kernel_roundings = find_compiled
  tf.config.run_functions_eagerly(True)
  try:
    yield
  finally:
    tf.config.run_functions_eagerly(False)
    fused_updates.kernel_roundings = find
