"""Builds programs that run the GPU kernels on the CPU."""

import concurrent.futures
import os
import pathlib
import platform
import re
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


# The head of a kernel, up to its body.
KERNEL = re.compile(r'extern "C" __global__[^{]*\)(?= \{)')
DECLARATIONS = """#include "emulator.h"
#include "gpu/groups.h"
#include "gpu/rotation_tables.h"
#include "gpu/update_tables.h"
namespace terngrad_gpu {
%s
}
"""


def build(folder, *options, sources=SOURCES):
  """Compiles the kernels and their test; returns the program.

  Other objects that are in `folder` are used again.

  Args:
    folder: for the objects and the program.
    *options: of the compiler.
    sources: the folder with the kernels, such as a changed copy.
  """
  program = folder / 'kernels_test'
  others = [SOURCES / 'kernels.cc', SOURCES / 'kernels_generic.cc']
  others.append(HERE / 'kernels_test.cc')
  others = [path for path in others if not _object(folder, path).exists()]
  _compile(folder, others, *options)
  _compile(folder, [HERE / 'gpu_kernels.cc'], f'-I{sources}', *options)
  _check([COMPILER, *options, *folder.glob('*.o'), '-o', program])
  return program


def build_driver(folder):
  """Compiles a libcuda.so.1 that runs kernels on the CPU; returns its path."""
  path = folder / 'libcuda.so.1'
  files = [HERE / 'fake_cuda.cc', HERE / 'gpu_kernels.cc']
  _compile(folder, files, '-O1', '-fPIC')
  objects = [_object(folder, file) for file in files]
  _check(
    [COMPILER, '-shared', '-Wl,-soname,libcuda.so.1', *objects, '-o', path]
  )
  return path


def _compile(folder, files, *options):
  """Compiles C++ files to objects, two at a time."""
  texts = [path.read_text(encoding='utf-8') for path in SOURCES.glob('gpu/*')]
  heads = [f'{head[0]};' for text in texts for head in KERNEL.finditer(text)]
  header = folder / 'declarations.h'
  header.write_text(DECLARATIONS % '\n'.join(heads), encoding='utf-8')
  command = [COMPILER, '-std=c++17', '-ffp-contract=off', *WARNINGS, *options]
  command += [f'-I{SOURCES}', f'-I{HERE}', f'-I{folder}']
  commands = [
    [*command, '-c', path, '-o', _object(folder, path)] for path in files
  ]
  with concurrent.futures.ThreadPoolExecutor(2) as pool:
    list(pool.map(_check, commands))


def _object(folder, path):
  return folder / f'{path.stem}.o'


def _check(command):
  subprocess.run(command, check=True, timeout=600)


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
