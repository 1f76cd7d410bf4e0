"""Imports TensorFlow without what it says of the machine while it starts.

`TF_CPP_MIN_LOG_LEVEL` alone leaves lines that are written before the library
has read it. What is held back is written after all where the import fails.
"""

import contextlib
import importlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator

from terngrad.cluster import onednn

# TensorFlow's own levels: 0 writes all, 2 leaves warnings and remarks out.
_LEVEL = 'TF_CPP_MIN_LOG_LEVEL'


def import_tensorflow(show: bool = False) -> None:
  """Imports TensorFlow and looks for devices, which it also comments.

  oneDNN is switched on before, where the environment does not decide.

  Args:
    show: True writes what it says, such as why it uses no GPU.
  """
  onednn.prefer()
  if show:
    os.environ[_LEVEL] = '0'
    _import()
    return
  os.environ.setdefault(_LEVEL, '2')
  with held_back():
    _import()


def _import() -> None:
  importlib.import_module('tensorflow').config.list_physical_devices()


@contextlib.contextmanager
def held_back() -> Iterator[None]:
  """Holds what is written to standard error, by libraries in C++ as well.

  It is written after all where the block raises, and dropped otherwise.
  """
  sys.stderr.flush()
  shown = os.dup(2)
  with tempfile.TemporaryFile() as held:
    os.dup2(held.fileno(), 2)
    raised = True
    try:
      yield
      raised = False
    finally:
      sys.stderr.flush()
      os.dup2(shown, 2)
      os.close(shown)
      if raised:
        held.seek(0)
        with open(os.dup(2), 'wb') as stderr:
          shutil.copyfileobj(held, stderr)
