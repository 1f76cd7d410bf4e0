"""Imports TensorFlow without its start-up messages and what it does not need.

`TF_CPP_MIN_LOG_LEVEL` does not suppress lines that are written before the
library reads it. If the import fails, the suppressed lines are written after
all.
"""

import contextlib
import importlib
import logging
import os
import shutil
import sys
import tempfile
import types
from collections.abc import Iterator
from typing import cast

from terngrad.machine import onednn
from terngrad.machine import xla_cache

# TensorFlow's log levels: 0 writes all, 3 only what ends the process. Level 2
# adds errors, which are exceptions too, or none: XLA writes some for each
# compiled function that it loads from its cache.
_LEVEL, _ALL, _LEAST = 'TF_CPP_MIN_LOG_LEVEL', '0', '3'
# Packages that TensorFlow and Keras import if they are installed, for wrappers
# and plots that no program uses. They take nearly as long as TensorFlow itself.
_OPTIONAL = ('matplotlib', 'pandas', 'sklearn')


def import_tensorflow() -> None:
  """Imports TensorFlow and lists devices, which also logs messages.

  Before the import it enables oneDNN and XLA's cache of compiled code, unless
  the environment decides. After `show_messages` it shows the messages, such as
  why no GPU is used.
  """
  onednn.prefer()
  xla_cache.prefer()
  with importing():
    importlib.import_module('tensorflow').config.list_physical_devices()


@contextlib.contextmanager
def importing() -> Iterator[None]:
  """Context in which a program imports TensorFlow and Keras.

  Hides their messages, unless `show_messages` ran, and leaves out packages that
  programs do not need. If the block raises, the messages are written after all.
  """
  # Keras's configuration may name JAX as its backend.
  is_backend_known = os.environ.get('KERAS_BACKEND') == 'tensorflow'
  unneeded = (*_OPTIONAL, 'jax') if is_backend_known else _OPTIONAL
  with _hidden_messages(), _without_packages(*unneeded):
    yield


@contextlib.contextmanager
def _without_packages(*names: str) -> Iterator[None]:
  """Makes imports of packages fail in the block, as if they were missing.

  Packages that are imported already stay.
  """
  hidden = [name for name in names if name not in sys.modules]
  # Python raises ModuleNotFoundError for modules that are None.
  sys.modules.update(cast(dict[str, types.ModuleType], dict.fromkeys(hidden)))
  try:
    yield
  finally:
    for name in hidden:
      del sys.modules[name]


@contextlib.contextmanager
def _hidden_messages() -> Iterator[None]:
  if os.environ.get(_LEVEL) == _ALL:
    yield
    return
  prefer_silence()
  with suppressed_stderr():
    yield


def prefer_silence() -> None:
  """Makes TensorFlow write no messages, unless the environment decides."""
  os.environ.setdefault(_LEVEL, _LEAST)


def show_messages() -> None:
  """Makes TensorFlow write all messages, here and in child processes."""
  os.environ[_LEVEL] = _ALL


@contextlib.contextmanager
def suppressed_stderr() -> Iterator[None]:
  """Suppresses output to standard error, including that of C++ libraries.

  The output is written after all if the block raises, and dropped otherwise.
  """
  sys.stderr.flush()
  shown = os.dup(2)
  with tempfile.TemporaryFile() as buffer:
    os.dup2(buffer.fileno(), 2)
    raised = True
    try:
      yield
      raised = False
    finally:
      sys.stderr.flush()
      os.dup2(shown, 2)
      os.close(shown)
      if raised:
        buffer.seek(0)
        with open(os.dup(2), 'wb') as stderr:
          shutil.copyfileobj(buffer, stderr)


@contextlib.contextmanager
def suppressed_retracing_warnings() -> Iterator[None]:
  """Drops TensorFlow's warnings of functions that are traced repeatedly.

  Commands that compile many codes for many shapes trace each once. TensorFlow
  counts by source line and takes them for one function.
  """

  def is_other(record: logging.LogRecord) -> bool:
    return 'triggered tf.function retracing' not in record.getMessage()

  logger = logging.getLogger('tensorflow')
  logger.addFilter(is_other)
  try:
    yield
  finally:
    logger.removeFilter(is_other)
