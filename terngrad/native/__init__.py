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

_SWITCHED_OFF = 'TERNGRAD_NATIVE=0.'
_BUILD = (
  'install the sources again: pip install --force-reinstall --no-deps '
  '--no-build-isolation . in their folder.'
)
_MARKER = 'terngrad-native-built-for-tensorflow-{};'


def available():
  """Whether the kernels can be used; warns once where they are missing."""
  return library() is not None


def library():
  """The loaded operations, or None; see `terngrad.native.ops`."""
  return _load()[0]


def why_not():
  """Why the kernels are not used, a sentence; None where they are."""
  return _load()[1]


@functools.cache
def _load():
  """(operations or None, why not or None)."""
  path, missing = _find()
  if missing is None:
    try:
      return tf.load_op_library(str(path)), None
    except (tf.errors.NotFoundError, OSError) as error:
      missing = f'{path.name} does not load: {error}'
  is_wish = missing == _SWITCHED_OFF
  log = logging.info if is_wish else logging.warning
  log('Native kernels: not used, %s', missing)
  return None, missing


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
    return path, _SWITCHED_OFF
  if not path.exists():
    return path, f'they were not built. With a C++ compiler, {_BUILD}'
  # Asked before the file is loaded: the ABI changes from version to version.
  if _MARKER.format(tf.__version__).encode() not in path.read_bytes():
    return path, (
      f'{path.name} was built for another version than TensorFlow '
      f'{tf.__version__}. With a C++ compiler, {_BUILD}'
    )
  return path, None
