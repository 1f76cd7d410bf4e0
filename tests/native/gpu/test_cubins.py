"""Compiled GPU kernels are cached in a private folder."""

import os
import stat

import pytest

from terngrad.native import cubins
from terngrad.native import nvrtc
from tests import forked


class CountingCompiler:
  """A compiler that makes other bytes in every call."""

  compiled = 0

  def version(self):
    return 12, 9

  def file_identity(self):
    return 1000, 5

  def architectures(self):
    return [70, 90]

  def compile(self, sources, architecture):
    assert any(name.endswith('.cu') for name in sources)
    type(self).compiled += 1
    return f'\x7fELF{architecture}, number {self.compiled}'.encode()


@pytest.fixture
def folder(tmp_path, monkeypatch):
  monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
  monkeypatch.setattr(nvrtc, 'Compiler', CountingCompiler)
  monkeypatch.setattr(CountingCompiler, 'compiled', 0)
  monkeypatch.setattr(cubins, 'sources', lambda: {'one.cu': ''})
  return tmp_path / 'terngrad' / 'cubins'


def test_second_call_reads_what_the_first_compiled(folder):
  assert cubins.cubins(90) == cubins.cubins(90)
  assert CountingCompiler.compiled == 1
  assert stat.S_IMODE(folder.stat().st_mode) == 0o700
  assert len(list(folder.iterdir())) == 1


def test_other_architecture_version_and_source_are_other_files(
  folder, monkeypatch
):
  found = [cubins.cubins(90), cubins.cubins(70)]
  monkeypatch.setattr(CountingCompiler, 'version', lambda _: (12, 8))
  found.append(cubins.cubins(90))
  monkeypatch.setattr(cubins, 'sources', lambda: {'other.cu': ''})
  found.append(cubins.cubins(90))
  assert len(set(map(tuple, found))) == len(list(folder.iterdir())) == 4


def test_another_file_of_the_same_version_compiles_again(folder, monkeypatch):
  first = cubins.cubins(90)
  # A patch release: of NVRTC 12.9 like the one before.
  monkeypatch.setattr(CountingCompiler, 'file_identity', lambda _: (1000, 6))
  assert cubins.cubins(90) != first
  assert len(list(folder.iterdir())) == 2


def test_only_files_that_include_a_change_are_compiled_again(
  folder, monkeypatch
):
  texts = {'a.cu': '#include "b.h"', 'b.h': '#include "c.h"', 'c.h': ''}
  texts['other.cu'] = '\n#include "d.h"\n'
  texts['d.h'] = ''
  monkeypatch.setattr(cubins, 'sources', lambda: texts)
  first = cubins.cubins(90)
  texts['c.h'] = '// Changed.'
  second = cubins.cubins(90)
  assert first[0] != second[0]
  assert first[1] == second[1]
  assert CountingCompiler.compiled == len(list(folder.iterdir())) == 3


def test_damaged_file_is_compiled_again(folder):
  first = cubins.cubins(90)
  (file,) = folder.iterdir()
  file.write_bytes(file.read_bytes()[:-1])
  second = cubins.cubins(90)
  assert second != first
  assert cubins.cubins(90) == second


def test_folder_that_others_can_write_is_not_used(folder):
  folder.mkdir(parents=True)
  folder.chmod(0o777)
  assert cubins.cubins(90) != cubins.cubins(90)
  assert list(folder.iterdir()) == []


def test_missing_home_compiles_every_time(folder, monkeypatch):
  folder.parent.write_text('a file where the folder would be')
  assert cubins.cubins(90) != cubins.cubins(90)


def test_a_newer_card_gets_the_programs_of_its_major_version(folder):
  assert cubins.cubins(97) == [b'\x7fELF90, number 1']
  with pytest.raises(nvrtc.CompilerError, match=r'70, 90\), received 89'):
    cubins.cubins(89)


def test_unknown_card_names_those_that_the_compiler_knows(folder):
  with pytest.raises(nvrtc.CompilerError, match=r'70, 90\), received 300'):
    cubins.cubins(300)


WITHOUT_GPU = """
import pathlib
from terngrad.codec.methods import registry
from terngrad.native import gpu
for text in ('ternary', 'qsgd', 'topk'):
  registry.parse(text).on_gpus()
assert gpu.unavailable_reason() == 'TensorFlow sees no GPU.'
maps = pathlib.Path('/proc/self/maps').read_text()
assert 'libnvrtc' not in maps and 'libcuda' not in maps
"""


@pytest.mark.skipif(
  not os.path.exists('/proc/self/maps') or os.path.exists('/dev/nvidiactl'),
  reason='needs Linux without a GPU',
)
def test_without_a_gpu_nothing_is_opened_or_logged():
  done = forked.run(None, WITHOUT_GPU)
  assert done.returncode == 0, done.stderr
  assert 'GPU kernels' not in done.stderr
