"""Compiles CUDA C++ with NVIDIA's runtime compiler (NVRTC), without a GPU.

NVRTC is a shared library. pip installs it as `nvidia-cuda-nvrtc-cu12`, which
`tensorflow[and-cuda]` requires; the CUDA toolkit has it too.
"""

import ctypes
import importlib.util
import os
import pathlib
from collections.abc import Iterable
from collections.abc import Mapping

# The system's names, the newest first.
_NAMES = ('libnvrtc.so.13', 'libnvrtc.so.12', 'libnvrtc.so')
# What every kernel needs for the CPU's bits.
OPTIONS = ('--std=c++17', '--fmad=false', '--ftz=true')
# Of dlinfo: the library's entry in the linker's list.
_LINK_MAP = 2


class CompilerError(RuntimeError):
  """NVRTC is missing or refuses a source; the message has the reason."""


class _LinkMap(ctypes.Structure):
  """The first fields of `struct link_map`."""

  _fields_ = [('address', ctypes.c_void_p), ('name', ctypes.c_char_p)]


class Compiler:
  """The functions of the NVRTC library at a path, or of the system's."""

  def __init__(self, path: str | None = None) -> None:
    """Loads the library.

    Args:
      path: of the library; None for that of pip, else the system's.

    Raises:
      CompilerError: there is none that can be loaded.
    """
    paths = [path] if path else [*_installed(), *_NAMES]
    self._library = _load_first(paths)

  def version(self) -> tuple[int, int]:
    """Returns NVRTC's version, such as (12, 9)."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    self._call('nvrtcVersion', ctypes.byref(major), ctypes.byref(minor))
    return major.value, minor.value

  def file_identity(self) -> tuple[int, ...]:
    """Returns what a release of the same version changes, for caches.

    Returns:
      (bytes, modification time in nanoseconds) of the library's file; () if the
      system does not say which file that is.
    """
    entry = ctypes.POINTER(_LinkMap)()
    handle = ctypes.c_void_p(self._library._handle)
    try:
      dlinfo = ctypes.CDLL(None).dlinfo
      if dlinfo(handle, _LINK_MAP, ctypes.byref(entry)):
        return ()
      status = os.stat(entry.contents.name)
    except (AttributeError, OSError):
      return ()
    return status.st_size, status.st_mtime_ns

  def architectures(self) -> list[int]:
    """Returns the compute capabilities that it knows, such as 90 for 9.0."""
    count = ctypes.c_int()
    self._call('nvrtcGetNumSupportedArchs', ctypes.byref(count))
    found = (ctypes.c_int * count.value)()
    self._call('nvrtcGetSupportedArchs', found)
    return list(found)

  def compile(self, sources: Mapping[str, str], architecture: int) -> bytes:
    """Compiles files to a cubin, the GPU's machine code.

    Args:
      sources: {name: text}; every name that ends in .cu is compiled, and can
        include the others.
      architecture: a compute capability, such as 90.

    Raises:
      CompilerError: NVRTC refuses a source; the message has its log.
    """
    program = ctypes.c_void_p()
    kernels = [name for name in sources if name.endswith('.cu')]
    main = ''.join(f'#include "{name}"\n' for name in kernels)
    self._call(
      'nvrtcCreateProgram',
      ctypes.byref(program),
      main.encode(),
      b'terngrad.cu',
      len(sources),
      _strings(sources.values()),
      _strings(sources),
    )
    try:
      return self._compile(program, f'--gpu-architecture=sm_{architecture}')
    finally:
      self._library.nvrtcDestroyProgram(ctypes.byref(program))

  def _compile(self, program: ctypes.c_void_p, architecture: str) -> bytes:
    options = [architecture, *OPTIONS]
    arguments = len(options), _strings(options)
    if self._library.nvrtcCompileProgram(program, *arguments):
      log = self._read(program, 'ProgramLog').rstrip(b'\0').decode()
      raise CompilerError(f'NVRTC with {architecture}: {log}')
    return self._read(program, 'CUBIN')

  def _read(self, program: ctypes.c_void_p, kind: str) -> bytes:
    size = ctypes.c_size_t()
    self._call(f'nvrtcGet{kind}Size', program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    self._call(f'nvrtcGet{kind}', program, buffer)
    return buffer.raw

  def _call(self, name: str, *arguments: object) -> None:
    try:
      function = getattr(self._library, name)
    except AttributeError as error:
      raise CompilerError(
        f'expected NVRTC 11.2 or later, received one without {name}. Install '
        'it: pip install nvidia-cuda-nvrtc-cu12'
      ) from error
    code = function(*arguments)
    if code:
      self._library.nvrtcGetErrorString.restype = ctypes.c_char_p
      reason = self._library.nvrtcGetErrorString(code).decode()
      raise CompilerError(f'{name}: {reason}')


def _installed() -> list[str]:
  """Returns the paths of NVRTC in pip's package, if it is installed."""
  try:
    spec = importlib.util.find_spec('nvidia.cuda_nvrtc')
  except ModuleNotFoundError:
    return []
  folders = (spec.submodule_search_locations or []) if spec else []
  return [
    str(path)
    for folder in folders
    for path in sorted(pathlib.Path(folder, 'lib').glob('libnvrtc.so.*'))
  ]


def _load_first(paths: Iterable[str]) -> ctypes.CDLL:
  errors = []
  for path in paths:
    try:
      return ctypes.CDLL(path)
    except OSError as error:
      errors.append(str(error))
  raise CompilerError(
    f'expected NVRTC, received {"; ".join(errors)}. Install it: pip install '
    'nvidia-cuda-nvrtc-cu12'
  )


def _strings(values: Iterable[str]) -> 'ctypes.Array[ctypes.c_char_p]':
  encoded = [value.encode() for value in values]
  return (ctypes.c_char_p * len(encoded))(*encoded)
