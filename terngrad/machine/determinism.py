"""Op determinism: operations of TensorFlow that give the same bits every time.

On GPUs many operations add in the order in which threads finish. Codes, kernels
and the CPU operations that trainers use have one order in any case. Without a
GPU the setting stays as it is: with it TensorFlow differentiates the cross
entropy by other operations, so that runs would end with other bits.
"""

import contextlib
from collections.abc import Iterator

import tensorflow as tf
from tensorflow.python.framework import config

_LOST = (
  'operations: not deterministic (--deterministic=false): on GPUs two equal '
  'runs, or a run that was resumed and one that was not, end with different '
  'bits'
)


@contextlib.contextmanager
def require(is_required: bool) -> Iterator[None]:
  """Context with deterministic operations, if required and if there is a GPU.

  The setting is that of the process. The environment variable
  TF_DETERMINISTIC_OPS=1 switches it on in any case.
  """
  if not (is_required and has_gpu()) or config.is_op_determinism_enabled():
    yield
    return
  tf.config.experimental.enable_op_determinism()
  try:
    yield
  finally:
    config.disable_op_determinism()


def has_gpu() -> bool:
  """Returns whether this machine has a GPU that TensorFlow can use."""
  return bool(tf.config.list_physical_devices('GPU'))


def describe() -> str:
  """Formats a log line on the present setting and what it costs."""
  if config.is_op_determinism_enabled():
    return 'operations: deterministic'
  return _LOST if has_gpu() else 'operations: those of CPUs, which repeat'
