"""Compiles the GPU kernels, or reads them from the user's cache folder.

A file of the cache holds a SHA-256 digest and the cubin. Its name is a digest
over everything that the cubin depends on, so that no file is ever outdated.
"""

import hashlib
import pathlib
from collections.abc import Mapping

from terngrad import user_cache
from terngrad.native import nvrtc

_SOURCES = pathlib.Path(__file__).parent / 'src' / 'gpu'
_DIGEST_BYTES = 32


def sources() -> dict[str, str]:
  """Returns the kernels and their headers, {file's name: text}."""
  return {
    path.name: path.read_text(encoding='utf-8')
    for path in sorted(_SOURCES.iterdir())
  }


def cubin(architecture: int) -> bytes:
  """Returns the kernels for a compute capability, such as 90 for 9.0.

  Raises:
    nvrtc.CompilerError: NVRTC is missing, does not know the architecture, or
      refuses the kernels.
    OSError: the sources are missing.
  """
  compiler, texts = nvrtc.Compiler(), sources()
  key = repr((sorted(texts.items()), architecture, compiler.version()))
  try:
    folder = user_cache.private_folder('cubins')
    name = hashlib.sha256(f'{key}{nvrtc.OPTIONS}'.encode()).hexdigest()
    found = _read(folder / f'{name}.cubin')
    if found is None:
      found = _compile(compiler, texts, architecture)
      digest = hashlib.sha256(found).digest()
      user_cache.replace(folder / f'{name}.cubin', digest + found)
    return found
  except OSError:
    # The cache only saves a second.
    return _compile(compiler, texts, architecture)


def _compile(
  compiler: nvrtc.Compiler, texts: Mapping[str, str], architecture: int
) -> bytes:
  known = compiler.architectures()
  if architecture not in known:
    version = '.'.join(map(str, compiler.version()))
    raise nvrtc.CompilerError(
      f'expected a compute capability that NVRTC {version} knows '
      f'({", ".join(map(str, known))}), received {architecture}. Install '
      'another nvidia-cuda-nvrtc-cu12.'
    )
  return compiler.compile(texts, architecture)


def _read(path: pathlib.Path) -> bytes | None:
  """Returns a stored cubin; None if there is none or it is damaged."""
  try:
    content = path.read_bytes()
  except FileNotFoundError:
    return None
  digest, stored = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
  return stored if hashlib.sha256(stored).digest() == digest else None
