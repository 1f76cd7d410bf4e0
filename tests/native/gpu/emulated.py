"""Builds programs that run the GPU kernels on the CPU."""

import concurrent.futures
import os
import pathlib
import platform
import shutil
import subprocess

HERE = pathlib.Path(__file__).parent
SOURCES = HERE.parents[2] / 'terngrad' / 'native' / 'src'
COMPILER = next(filter(shutil.which, ('g++', 'c++')), None)
# The emulator switches fibers as glibc has them and flushes subnormal numbers.
SUPPORTED = COMPILER is not None and platform.machine() in ('x86_64', 'AMD64')
WARNINGS = ['-Wall', '-Wextra', '-Werror', '-Wno-psabi', '-Wno-sign-compare']
WARNINGS += ['-Wno-maybe-uninitialized', '-Wno-unknown-pragmas']
# The kernels' shared memory is in a section, which g++ guards only if it is
# named.
SANITIZED = ('-O1', '-g', '-fsanitize=address,undefined')
SANITIZED += ('-fno-sanitize-recover=all', '-fsanitize-sections=gpu_shared')


def build(folder, *options, sources=SOURCES):
  """Compiles the kernels' test; returns the program.

  Objects of the CPU's kernels that are in `folder` are used again.

  Args:
    folder: for the objects and the program.
    *options: of the compiler.
    sources: the folder with the kernels, such as a changed copy.
  """
  common = [COMPILER, '-std=c++17', '-ffp-contract=off', *WARNINGS, *options]
  test = folder / 'kernels_test.o'
  commands = [
    [*common, f'-I{sources}', f'-I{HERE}', '-c', HERE / 'kernels_test.cc']
    + ['-o', test]
  ]
  objects = [folder / f'{name}.o' for name in ('kernels', 'kernels_generic')]
  commands += [
    [*common, '-c', SOURCES / f'{path.stem}.cc', '-o', path]
    for path in objects
    if not path.exists()
  ]
  with concurrent.futures.ThreadPoolExecutor(2) as pool:
    list(pool.map(_check, commands))
  program = folder / 'kernels_test'
  _check([COMPILER, *options, *objects, test, '-o', program])
  return program


def _check(command):
  subprocess.run(command, check=True, timeout=600)


def build_driver(folder):
  """Compiles a libcuda.so.1 that runs kernels on the CPU; returns its path."""
  path = folder / 'libcuda.so.1'
  command = [COMPILER, '-std=c++17', '-O1', '-ffp-contract=off', *WARNINGS]
  command += ['-shared', '-fPIC', '-Wl,-soname,libcuda.so.1', '-o', path]
  _check([*command, f'-I{SOURCES}', f'-I{HERE}', HERE / 'fake_cuda.cc'])
  return path


def run(program, seed, trials, timeout=900):
  """Runs trials of a program; returns the completed process."""
  return subprocess.run(
    [program, str(seed), str(trials)],
    capture_output=True,
    text=True,
    check=False,
    timeout=timeout,
    env={**os.environ, 'UBSAN_OPTIONS': 'halt_on_error=1'},
  )
