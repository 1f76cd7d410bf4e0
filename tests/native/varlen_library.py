"""Compiles the packings of variable length and calls them through ctypes."""

import ctypes
import pathlib
import shutil
import subprocess

import numpy as np
import pytest

SOURCE = pathlib.Path(__file__).with_name('varlen')
SOURCES = (SOURCE / 'varlen.cc', SOURCE / 'huffman243.cc')
HERE = pathlib.Path(__file__).resolve().parent

SANITIZERS = ('-fsanitize=address,undefined', '-fno-sanitize-recover=all')

# Of varlen.h.
(
  OK,
  TOO_MANY,
  CAPACITY,
  BAD_CODE,
  LENGTH,
  HEADER,
  DIGIT,
  BLOCKS,
  TAIL,
  NOT_SHORTEST,
) = range(10)


def compile_to(output, sources, *flags):
  """Compiles with warnings as errors; skips the test without a compiler."""
  compiler = shutil.which('g++') or shutil.which('c++')
  if compiler is None:
    pytest.skip('no C++ compiler (g++ or c++) is installed')
  command = [compiler, '-std=c++17', '-Wall', '-Wextra', '-Werror', *flags]
  command += [f'-I{SOURCE}', '-o', str(output), *map(str, sources)]
  done = subprocess.run(command, capture_output=True, text=True, check=False)
  assert done.returncode == 0, done.stderr
  return output


class Library:
  """The C functions, with NumPy arrays for pointers."""

  def __init__(self, folder):
    path = folder / 'varlen.so'
    compile_to(path, SOURCES, '-O2', '-fPIC', '-shared')
    self._library = ctypes.CDLL(str(path))
    self._library.terngrad_varlen_message.restype = ctypes.c_char_p

  def message(self, status):
    return self._library.terngrad_varlen_message(status).decode()

  def capacity(self, name, count):
    function = self._function(name, 'capacity')
    function.restype = ctypes.c_size_t
    return function(ctypes.c_size_t(count))

  def encode(self, name, codes, capacity=None):
    """(status, int32 words, used) of codes."""
    codes = np.ascontiguousarray(codes, np.int8)
    if capacity is None:
      capacity = self.capacity(name, codes.size)
    words = np.full(capacity, -1, np.int32)
    used = ctypes.c_size_t()
    status = self._function(name, 'encode')(
      _pointer(codes),
      ctypes.c_size_t(codes.size),
      _pointer(words),
      ctypes.c_size_t(words.size),
      ctypes.byref(used),
    )
    return status, words, used.value

  def decode(self, name, words, count):
    """(status, int8 codes) of words."""
    words = np.ascontiguousarray(words, np.int32)
    codes = np.full(count, 99, np.int8)
    status = self._function(name, 'decode')(
      _pointer(words),
      ctypes.c_size_t(words.size),
      _pointer(codes),
      ctypes.c_size_t(count),
    )
    return status, codes

  def lengths(self, step):
    """(status, uint8 [243]) of a table of huffman243."""
    lengths = np.zeros(243, np.uint8)
    function = self._function('huffman243', 'lengths')
    return function(ctypes.c_int(step), _pointer(lengths)), lengths

  def _function(self, name, verb):
    return getattr(self._library, f'terngrad_{name}_{verb}')


def fuzzer(folder):
  """Builds the coverage-guided fuzzer with sanitizers; returns its path."""
  flags = ('-O1', '-g', *SANITIZERS)
  objects = []
  for source, traced in (
    *((source, True) for source in SOURCES),
    (HERE / 'fuzz_varlen.cc', True),
    (HERE / 'coverage_driver.cc', False),
  ):
    trace = ['-fsanitize-coverage=trace-pc'] if traced else []
    target = folder / f'{source.stem}.o'
    objects.append(compile_to(target, [source], *flags, *trace, '-c'))
  return compile_to(folder / 'fuzzer', objects, *flags)


def _pointer(array):
  return array.ctypes.data_as(ctypes.c_void_p)
