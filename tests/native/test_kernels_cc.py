"""The kernels in C++ alone: each instruction set, threads and sanitizers."""

import concurrent.futures
import os
import pathlib
import platform
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCES = ROOT / 'terngrad' / 'native' / 'src'
COMPILER = next(filter(shutil.which, ('g++', 'c++', 'clang++')), None)
X86 = platform.machine() in ('x86_64', 'AMD64')
FLAGS = {
  'kernels.cc': ['-ffp-contract=off'],
  'kernels_generic.cc': [],
  'kernels_avx2.cc': ['-mavx2', '-mfma'],
  'kernels_avx512.cc': ['-march=skylake-avx512', '-mprefer-vector-width=512'],
}

pytestmark = pytest.mark.skipif(
  COMPILER is None, reason='there is no C++ compiler'
)


def build(folder, *options, test='kernels_test'):
  """Compiles a test with the kernels; returns the program."""
  common = [COMPILER, '-std=c++17', '-Wall', '-Wextra', '-Werror']
  common += ['-Wno-psabi', '-Wno-maybe-uninitialized', f'-I{SOURCES}']
  common += [
    *options,
    *(['-DTERNGRAD_AVX2', '-DTERNGRAD_AVX512'] if X86 else []),
  ]
  sources = {SOURCES / name: flags for name, flags in FLAGS.items()}
  if not X86:
    sources = {p: f for p, f in sources.items() if 'avx' not in p.name}
  sources[pathlib.Path(__file__).with_name(f'{test}.cc')] = []
  objects = [folder / f'{source.name}.o' for source in sources]

  def compile_one(source, flags, to):
    subprocess.run(
      [*common, *flags, '-c', source, '-o', to], check=True, timeout=600
    )

  with concurrent.futures.ThreadPoolExecutor(2) as pool:
    list(pool.map(compile_one, sources, sources.values(), objects))
  program = folder / test
  subprocess.run(
    [COMPILER, *options, *objects, '-o', program, '-lpthread'],
    check=True,
    timeout=600,
  )
  return program


def sanitizer_flags(sanitizer):
  """The options for a build that ends where a sanitizer finds something."""
  return ('-O1', '-g', f'-fsanitize={sanitizer}', '-fno-sanitize-recover=all')


def run(program, seed, trials):
  return subprocess.run(
    [program, str(seed), str(trials)],
    capture_output=True,
    text=True,
    check=False,
    timeout=900,
    env={**os.environ, 'UBSAN_OPTIONS': 'halt_on_error=1'},
  )


@pytest.mark.slow
def test_all_instruction_sets_give_the_same_bits_on_any_threads(tmp_path):
  done = run(build(tmp_path, '-O2'), 1, 300)
  assert done.returncode == 0, done.stdout + done.stderr
  assert done.stdout.splitlines()[0] == 'generic'
  assert done.stdout.splitlines()[-1] == '300 trials'


@pytest.mark.slow
@pytest.mark.parametrize(
  'sanitizer', ['address,undefined', 'thread'], ids=['memory', 'threads']
)
def test_sanitizer_finds_no_error(tmp_path, sanitizer):
  program = build(tmp_path, *sanitizer_flags(sanitizer))
  done = run(program, 2, 150)
  assert done.returncode == 0, done.stdout + done.stderr
  assert done.stderr == ''


@pytest.mark.slow
@pytest.mark.parametrize(
  ('count', 'options'),
  [
    (100_000, ('-O2',)),
    (1_000_000, sanitizer_flags('address,undefined')),
  ],
  ids=['fast', 'memory'],
)
def test_any_words_decode_alike_and_within_bounds(tmp_path, count, options):
  done = run(build(tmp_path, *options, test='payloads_test'), 1, count)
  assert done.returncode == 0, done.stdout + done.stderr
  assert done.stderr == ''
  counts = [int(line.split()[1]) for line in done.stdout.splitlines()[-8:]]
  assert sum(counts) >= count and min(counts) > count // 20
