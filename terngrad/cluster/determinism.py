"""Op determinism: operations of TensorFlow that give the same bits every time.

On GPUs many operations add in the order in which threads finish. Codes, kernels
and the CPU operations that trainers use have one order in any case.
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
  """Context in which TensorFlow uses deterministic operations, if required.

  The setting is that of the process. False leaves it unchanged: the environment
  variable TF_DETERMINISTIC_OPS=1 may have switched it on.
  """
  if not is_required or config.is_op_determinism_enabled():
    yield
    return
  tf.config.experimental.enable_op_determinism()
  try:
    yield
  finally:
    config.disable_op_determinism()


def describe() -> str:
  """Formats a log line on the present setting and what it costs."""
  if config.is_op_determinism_enabled():
    return 'operations: deterministic'
  return _LOST
