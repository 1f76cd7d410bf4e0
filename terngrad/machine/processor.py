"""This machine's processor: its name, its model, its vector instructions.

Libraries choose kernels by these, so equal programs may round differently on
two processors.
"""

import os
import pathlib
import platform

_INFO = '/proc/cpuinfo'
# Prefixes of the instructions by which oneDNN, XLA and Eigen choose kernels.
_VECTOR = ('sse4', 'avx', 'fma', 'amx', 'asimd', 'sve')
_MODEL = ('vendor_id', 'cpu family', 'model')


def name(path: str | os.PathLike[str] = _INFO) -> str:
  """Returns the processor's name, or the name of its architecture.

  Args:
    path: file with the lines of Linux's /proc/cpuinfo; may be missing.
  """
  found = _fields(path).get('model name') or platform.processor()
  return found.strip() or platform.machine()


def model(path: str | os.PathLike[str] = _INFO) -> str:
  """Returns vendor, family and model: 'AuthenticAMD family 26 model 2'.

  Virtual machines often hide the name, but not these numbers. Parts that are
  not known are left out; on other systems the text is that of `name`.
  """
  fields = _fields(path)
  known = [fields.get(key, '') for key in _MODEL]
  words = ('', 'family ', 'model ')
  parts = [f'{w}{k}' for w, k in zip(words, known, strict=True) if k]
  return ' '.join(parts) or name(path)


def instructions(path: str | os.PathLike[str] = _INFO) -> str:
  """Returns the vector instruction sets in alphabetical order, or ''."""
  fields = _fields(path)
  flags = fields.get('flags') or fields.get('Features') or ''
  return ' '.join(sorted({f for f in flags.split() if f.startswith(_VECTOR)}))


def _fields(path: str | os.PathLike[str]) -> dict[str, str]:
  """Returns the fields of the first core; {} if the file cannot be read."""
  try:
    text = pathlib.Path(path).read_text(encoding='utf-8')
  except (OSError, ValueError):
    return {}
  lines = text.strip().split('\n\n', 1)[0].splitlines()
  pairs = (line.partition(':') for line in lines)
  return {key.strip(): value.strip() for key, _, value in pairs}
