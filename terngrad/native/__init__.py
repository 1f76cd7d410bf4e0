"""The C++ kernels of the codecs' hot loops on CPUs, and whether they are here.

setup.py builds them against the TensorFlow that is installed, where there is a
compiler. They are optional: without them the same functions run as TensorFlow
operations, slower and to the same bits. `TERNGRAD_NATIVE=0` in the environment
switches them off.
"""

import functools
import importlib.machinery
import os
import pathlib

import tensorflow as tf
from absl import logging

_MARKER = 'terngrad-native-built-for-tensorflow-{};'


def available():
  """Whether the kernels can be used; says once in the log why not."""
  return library() is not None


@functools.cache
def library():
  """The loaded operations, or None; see `terngrad.native.ops`."""
  path, why_not = _find()
  if why_not is None:
    try:
      return tf.load_op_library(str(path))
    except (tf.errors.NotFoundError, OSError) as error:
      why_not = f'{path.name} does not load: {error}'
  logging.info('Native kernels: not used, %s', why_not)
  return None


def _find():
  """The library's path, and why it is not to be loaded or None."""
  switch = os.environ.get('TERNGRAD_NATIVE', '1')
  if switch not in ('0', '1'):
    raise ValueError(
      f'TERNGRAD_NATIVE: expected 0 or 1, received {switch!r}. Unset it.'
    )
  suffix = importlib.machinery.EXTENSION_SUFFIXES[0]
  path = pathlib.Path(__file__).parent / f'_kernels{suffix}'
  if switch == '0':
    return path, 'TERNGRAD_NATIVE=0.'
  if not path.exists():
    return path, (
      'they were not built. With a C++ compiler, install again: '
      'pip install --no-build-isolation .'
    )
  # Asked before the file is loaded: the ABI changes from version to version.
  if _MARKER.format(tf.__version__).encode() not in path.read_bytes():
    return path, (
      f'{path.name} was built for another version than TensorFlow '
      f'{tf.__version__}. Install again: pip install --no-build-isolation .'
    )
  return path, None
