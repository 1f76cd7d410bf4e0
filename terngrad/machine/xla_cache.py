"""XLA's cache of compiled functions, in a private folder of the user's cache.

The second start of the same program then loads what the first one compiled.
TensorFlow reads the switch when it initializes its devices, so this module does
not import it. The log of a run says whether the cache is used.
"""

import hashlib
import importlib.metadata
import os
import pathlib
import platform
import re
import shutil
import sys
from typing import IO

from terngrad import user_cache
from terngrad.machine import xla_entries

SWITCH, VARIABLE = 'TERNGRAD_XLA_CACHE', 'TF_XLA_FLAGS'
MOST_BYTES = 2**29
_LEAST_FREE = 2**30
FLAG = '--tf_xla_persistent_cache'
_READ_ONLY = f'{FLAG}_read_only=true'
_DIRECTORY = re.compile(rf'{FLAG}_directory=(\S*)')
# What compiled code depends on, besides the versions of TensorFlow and Python.
_PROCESSOR, _NVIDIA = '/proc/cpuinfo', '/proc/driver/nvidia'
_OF_PROCESSOR = ('model name', 'flags', 'Features', 'CPU part')

# Why the cache is not used, and the file that is locked while it is.
_reasons: list[str] = []
_locks: list[IO[bytes]] = []


def prefer() -> None:
  """Turns the cache on, unless the environment or its folder is against it.

  Call it before TensorFlow's first operation; later it has no effect. Child
  processes inherit the choice.
  """
  flags = os.environ.get(VARIABLE, '')
  _reasons.clear()
  if _DIRECTORY.search(flags):
    return
  if os.environ.get(SWITCH, '1') == '0':
    _reasons.append(f'{SWITCH}=0')
  elif flags and not flags.lstrip().startswith('-'):
    _reasons.append(f'{VARIABLE} names a file')
  else:
    try:
      os.environ[VARIABLE] = f'{_open()} {flags}'.strip()
    except (OSError, importlib.metadata.PackageNotFoundError) as error:
      # The cache only saves time.
      _reasons.append(str(error))


def keep_compiled_code() -> str:
  """Turns the cache on in a program of your own; see `prefer`.

  Call it before TensorFlow's first operation, best after the imports.

  Returns:
    A line that says where the code is kept, or why it is not.

  Raises:
    RuntimeError: TensorFlow has initialized its devices already.
  """
  found = sys.modules.get('tensorflow.python.eager.context')
  context = found and found.context_safe()
  if context and context._initialized:
    raise RuntimeError(
      'keep_compiled_code: expected a call before the first operation of '
      'TensorFlow, received one after it. Call it after the imports, or set '
      f'{VARIABLE}={FLAG}_directory=FOLDER in the environment.'
    )
  prefer()
  return describe()


def describe() -> str:
  """Formats a log line."""
  flags = os.environ.get(VARIABLE, '')
  found = _DIRECTORY.search(flags)
  if found and _READ_ONLY in flags:
    return (
      f'compiled code: only read from {found[1]}, where less than 1 GiB was '
      f'free, or because {VARIABLE} says so'
    )
  if found:
    return f'compiled code: kept in {found[1]}'
  reason = _reasons[0] if _reasons else 'nothing asked for it'
  return f'compiled code: not kept ({reason})'


def _open() -> str:
  """Cleans and locks the folder; returns TensorFlow's flags for it.

  Raises:
    OSError: the folder cannot be used, or others can write to it.
  """
  folder = user_cache.private_folder('xla')
  if re.search(r'[\s"\'\\]', str(folder)):
    raise OSError(f'{folder}: expected a path without spaces and quotes')
  prefix = f'terngrad_{_machine()}'
  file, is_alone = xla_entries.lock(folder)
  try:
    if is_alone:
      xla_entries.clean(folder, MOST_BYTES)
      xla_entries.share(file)
  except BaseException:
    file.close()
    raise
  _locks.append(file)
  flags = f'{FLAG}_directory={folder} {FLAG}_prefix={prefix}'
  # A step fails if its entry cannot be written.
  if shutil.disk_usage(folder).free < _LEAST_FREE:
    flags += f' {_READ_ONLY}'
  return flags


def _machine() -> str:
  """Returns a digest of what compiled code depends on."""
  facts = [
    importlib.metadata.version('tensorflow'),
    platform.machine(),
    str(len(os.sched_getaffinity(0))),
    os.environ.get('XLA_FLAGS', ''),
    *_lines(pathlib.Path(_PROCESSOR), _OF_PROCESSOR),
    *_lines(pathlib.Path(_NVIDIA, 'version'), ('NVRM',)),
  ]
  for path in sorted(pathlib.Path(_NVIDIA, 'gpus').glob('*/information')):
    facts += _lines(path, ('Model',))
  return hashlib.sha256('\n'.join(facts).encode()).hexdigest()[:16]


def _lines(path: pathlib.Path, starts: tuple[str, ...]) -> list[str]:
  """Returns the different lines of a file with these starts, sorted."""
  try:
    lines = path.read_text(encoding='utf-8', errors='replace').splitlines()
  except OSError:
    return []
  return sorted({line for line in lines if line.startswith(starts)})
