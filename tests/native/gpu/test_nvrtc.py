"""NVIDIA's compiler accepts the GPU kernels for every kind of card."""

import os
import pathlib
import re
import shutil

import pytest

from terngrad.native import cubins
from terngrad.native import nvrtc

SOURCES = {
  path.name: path.read_text(encoding='utf-8')
  for path in sorted(pathlib.Path(nvrtc.__file__).parent.glob('src/gpu/*'))
}
KERNELS = {
  name
  for text in SOURCES.values()
  for name in re.findall(r'__global__[^(]*\(kThreads[^)]*\)\s+(\w+)\(', text)
}


@pytest.fixture(scope='module')
def compiler():
  try:
    return nvrtc.Compiler()
  except nvrtc.CompilerError as error:
    pytest.skip(str(error))


ARCHITECTURES = 70, 80, 86, 90, 100


def test_every_kernel_compiles_for_the_oldest_card(compiler):
  known = compiler.architectures()
  check_compiles(compiler, min(n for n in ARCHITECTURES if n in known))


@pytest.mark.slow
@pytest.mark.parametrize('architecture', ARCHITECTURES[1:])
def test_every_kernel_compiles(compiler, architecture):
  if architecture not in compiler.architectures():
    pytest.skip(f'NVRTC {compiler.version()} has no sm_{architecture}')
  check_compiles(compiler, architecture)


def check_compiles(compiler, architecture):
  found = []
  for program in cubins.programs(SOURCES):
    cubin = compiler.compile(program, architecture)
    assert cubin.startswith(b'\x7fELF')
    found += set(re.findall(rb'\.text\.(\w+)\0', cubin))
  assert sorted(name.encode() for name in KERNELS) == sorted(found)
  assert len(KERNELS) >= 8


def test_error_of_the_compiler_names_file_and_line(compiler):
  broken = {'broken.cu': '\nint x = undefined;'}
  with pytest.raises(nvrtc.CompilerError, match=r'broken\.cu\(2\): error'):
    compiler.compile(broken, 90)


def test_missing_compiler_names_the_package_that_has_it(tmp_path):
  with pytest.raises(
    nvrtc.CompilerError, match='pip install nvidia-cuda-nvrtc'
  ):
    nvrtc.Compiler(str(tmp_path / 'libnvrtc.so.12'))


def test_a_library_without_a_function_is_refused_by_the_versions_that_have_it():
  older = nvrtc.Compiler('libm.so.6')
  with pytest.raises(
    nvrtc.CompilerError, match='NVRTC 11.2 or later, .* nvrtcGetNumSupported'
  ):
    older.architectures()


def test_identity_is_that_of_the_file_that_was_loaded(tmp_path):
  # A library that every system has; it need not be NVRTC.
  file = tmp_path / 'libnvrtc.so.12'
  entry = nvrtc.Compiler('libm.so.6').file_identity()
  assert len(entry) == 2
  source = next(
    line.split()[-1]
    for line in pathlib.Path('/proc/self/maps').read_text().splitlines()
    if 'libm.so' in line
  )
  shutil.copyfile(source, file)
  os.utime(file, ns=(5, 7))
  found = nvrtc.Compiler(str(file)).file_identity()
  assert found == (os.stat(source).st_size, 7)
  assert entry == (os.stat(source).st_size, os.stat(source).st_mtime_ns)


class PtxCompiler(nvrtc.Compiler):
  """Returns the code before that of the GPU, which can be read."""

  def _read(self, program, kind):
    return super()._read(program, kind.replace('CUBIN', 'PTX'))


ARITHMETIC = re.compile(r'\b(?:fma|mul|add|sub|neg)\.[\w.]*f32\b')


@pytest.mark.usefixtures('compiler')
def test_updates_of_parameters_compute_with_subnormal_numbers():
  """As XLA's do: only decoding flushes numbers to zero."""
  (program,) = cubins.programs(
    {
      name: text
      for name, text in SOURCES.items()
      if not name.endswith('.cu') or name == 'ternary_update.cu'
    }
  )
  found = set(ARITHMETIC.findall(PtxCompiler().compile(program, 90).decode()))
  # The products with the scaler and the scale; 1 - decay, which is normal.
  assert found == {'fma.rn.f32', 'mul.rn.ftz.f32', 'sub.rn.ftz.f32'}
