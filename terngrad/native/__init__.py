"""Loads the C++ kernels for the codecs' hot loops on CPUs.

setup.py builds them against the installed TensorFlow if there is a compiler.
They are optional. Without them the same functions run as TensorFlow operations,
slower and with bit-identical results.

The environment variable `TERNGRAD_NATIVE` selects the kernels: 0 turns them
off; 'avx512', 'avx2' or 'generic' selects an instruction set, with
bit-identical results, so that one machine can measure all that it supports; 1
(the default) selects the fastest.
"""

import ctypes
import functools
import importlib.machinery
import os
import pathlib
from typing import Any

import tensorflow as tf
from absl import logging

_SWITCH = 'TERNGRAD_NATIVE'
_SWITCHED_OFF = f'{_SWITCH}=0.'
_INSTRUCTION_SETS = ('generic', 'avx2', 'avx512')
_BUILD = (
  'To build them with a C++ compiler, run pip install --force-reinstall '
  '--no-deps --no-build-isolation . in the folder of the sources.'
)
_MARKER = 'terngrad-native-built-for-tensorflow-{};'


def available() -> bool:
  """Returns True if the kernels can be used; warns once if they are missing."""
  return library() is not None


def library() -> Any:
  """Returns the loaded operations, or None.

  Their type is Any, because TensorFlow creates the module when it loads it.
  """
  return _load()[0]


def operation(name: str, on_gpus: bool) -> Any:
  """Returns an operation of the library, for CPUs or for GPUs."""
  return getattr(library(), f'terngrad_{"gpu_" * on_gpus}{name}')


def unavailable_reason() -> str | None:
  """Returns the reason why the kernels are not used; None if they are."""
  return _load()[1]


def library_path() -> pathlib.Path:
  """Returns the file of the kernels, which may be missing."""
  return _find()[0]


@functools.cache
def instruction_set() -> str | None:
  """Returns 'avx512', 'avx2' or 'generic'; None if no kernels are used."""
  return _chosen(library_path()) if available() else None


@functools.cache
def _load() -> tuple[Any, str | None]:
  """Returns (operations or None, reason for None)."""
  path, missing = _find()
  if missing is None:
    try:
      operations, chosen = tf.load_op_library(str(path)), _chosen(path)
    except (tf.errors.NotFoundError, OSError) as error:
      missing = f'{path.name} cannot be loaded: {error}'
    except AttributeError:
      missing = f'{path.name} was built from older sources. {_BUILD}'
    else:
      _check(chosen)
      return operations, None
  log = logging.info if missing == _SWITCHED_OFF else logging.warning
  log('Native kernels are not used: %s', missing)
  return None, missing


def _chosen(path: pathlib.Path) -> str:
  """Returns the instruction set that the loaded library uses.

  Raises:
    AttributeError: the library was built from older sources.
  """
  chosen = ctypes.CDLL(str(path)).terngrad_instruction_set
  chosen.restype = ctypes.c_char_p
  return chosen().decode()


def _check(chosen: str) -> None:
  """Raises ValueError if this processor lacks the requested instruction set."""
  wanted = os.environ.get(_SWITCH, '1')
  if wanted in _INSTRUCTION_SETS and wanted != chosen:
    raise ValueError(
      f'{_SWITCH}: expected an instruction set that this processor supports '
      f'and that was compiled (TERNGRAD_KERNELS), received {wanted!r}. Unset '
      f'it to use the fastest, which is {chosen!r}.'
    )


def _find() -> tuple[pathlib.Path, str | None]:
  """Returns the library's path, and the reason not to load it or None."""
  switch = os.environ.get(_SWITCH, '1')
  if switch not in ('0', '1', *_INSTRUCTION_SETS):
    raise ValueError(
      f'{_SWITCH}: expected 0, 1, {", ".join(_INSTRUCTION_SETS)}, received '
      f'{switch!r}. Unset it to use the fastest kernels.'
    )
  suffix = importlib.machinery.EXTENSION_SUFFIXES[0]
  path = pathlib.Path(__file__).parent / f'_kernels{suffix}'
  if switch == '0':
    return path, _SWITCHED_OFF
  if not path.exists():
    return path, f'they were not built. {_BUILD}'
  # Checked before loading, because the ABI differs between versions.
  if _MARKER.format(tf.__version__).encode() not in path.read_bytes():
    return path, (
      f'{path.name} was not built for TensorFlow {tf.__version__}. {_BUILD}'
    )
  return path, None
