"""Compiles the GPU kernels, or reads them from the user's cache folder.

Each file of kernels is a program of its own, so that they are compiled at the
same time. A file of the cache holds a SHA-256 digest and the cubin. Its name is
a digest over everything that the cubin depends on, so that no file is ever
outdated.
"""

import concurrent.futures
import contextlib
import functools
import hashlib
import os
import pathlib
import re
from collections.abc import Mapping

from terngrad import user_cache
from terngrad.native import nvrtc

_SOURCES = pathlib.Path(__file__).parent / 'src' / 'gpu'
_DIGEST_BYTES = 32
_INCLUDE = re.compile(r'^#include "(.+)"', re.MULTILINE)


def sources() -> dict[str, str]:
  """Returns the kernels and their headers, {file's name: text}."""
  return {
    path.name: path.read_text(encoding='utf-8')
    for path in sorted(_SOURCES.iterdir())
  }


def programs(texts: Mapping[str, str]) -> list[dict[str, str]]:
  """Returns each file of kernels in `texts` with what it includes."""
  return [_with_included(name, texts) for name in texts if name.endswith('.cu')]


def cubins(architecture: int) -> list[bytes]:
  """Returns the kernels for a compute capability, such as 90 for 9.0.

  Raises:
    nvrtc.CompilerError: NVRTC is missing, does not know the architecture, or
      refuses the kernels.
    OSError: the sources are missing.
  """
  compiler = nvrtc.Compiler()
  try:
    folder = user_cache.private_folder('cubins')
  except OSError:
    folder = None  # The cache only saves seconds.
  one = functools.partial(_cubin, compiler, folder, architecture)
  # The compiler runs without Python's lock.
  with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    return list(pool.map(one, programs(sources())))


def _with_included(name: str, texts: Mapping[str, str]) -> dict[str, str]:
  found, names = {}, [name]
  while names:
    name = names.pop()
    if name not in found:
      found[name] = texts[name]
      names += _INCLUDE.findall(texts[name])
  return found


def _cubin(
  compiler: nvrtc.Compiler,
  folder: pathlib.Path | None,
  architecture: int,
  texts: Mapping[str, str],
) -> bytes:
  """Returns a program from the cache in `folder`, or compiles it."""
  if folder is None:
    return _compile(compiler, texts, architecture)
  # NVRTC's version has no patch level.
  of_compiler = compiler.version(), compiler.file_identity(), nvrtc.OPTIONS
  key = repr((sorted(texts.items()), architecture, of_compiler))
  name = hashlib.sha256(key.encode()).hexdigest()
  path = folder / f'{name}.cubin'
  found = _read(path)
  if found is None:
    found = _compile(compiler, texts, architecture)
    with contextlib.suppress(OSError):
      user_cache.replace(path, hashlib.sha256(found).digest() + found)
  return found


def _compile(
  compiler: nvrtc.Compiler, texts: Mapping[str, str], architecture: int
) -> bytes:
  known = compiler.architectures()
  # A newer card runs the programs of older ones with its major version.
  major = architecture // 10
  fitting = [one for one in known if one <= architecture and one // 10 == major]
  if not fitting:
    version = '.'.join(map(str, compiler.version()))
    raise nvrtc.CompilerError(
      f'expected a compute capability that NVRTC {version} knows '
      f'({", ".join(map(str, known))}), received {architecture}. Install '
      'another nvidia-cuda-nvrtc-cu12.'
    )
  return compiler.compile(texts, max(fitting))


def _read(path: pathlib.Path) -> bytes | None:
  """Returns a stored cubin; None if it is missing or damaged."""
  try:
    content = path.read_bytes()
  except OSError:
    return None
  digest, stored = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
  return stored if hashlib.sha256(stored).digest() == digest else None
