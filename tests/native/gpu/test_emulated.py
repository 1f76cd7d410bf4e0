"""The GPU kernels, run on the CPU, give the bits of the CPU's kernels."""

import pathlib
import shutil

import pytest

from tests.native.gpu import emulated

pytestmark = pytest.mark.skipif(
  not emulated.SUPPORTED, reason='the emulator needs g++ on x86-64'
)


def test_gpu_kernels_give_the_bits_of_cpu_kernels(tmp_path):
  done = emulated.run(emulated.build(tmp_path, '-O1'), 1, 10)
  assert done.returncode == 0, done.stdout + done.stderr
  assert done.stdout == '10 trials\n'


@pytest.mark.slow
@pytest.mark.parametrize(
  'options', [('-O2',), emulated.SANITIZED], ids=['fast', 'sanitizers']
)
def test_long_search_finds_no_other_bit_and_no_error(tmp_path, options):
  program = emulated.build(tmp_path, *options)
  for seed in (2, 3):
    done = emulated.run(program, seed, 150)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == '150 trials\n'


BARRIER = '__syncthreads();'
# Follows barriers that only the speed depends on.
HARMLESS = '  // Without it only the estimate would differ.'


def barriers():
  """Yields (file, number) of every barrier on which results depend."""
  for path in sorted(pathlib.Path(emulated.SOURCES, 'gpu').iterdir()):
    # Of blocks that wait for each other; here they run one at a time.
    if path.name == 'device.h':
      continue
    _, *after = path.read_text(encoding='utf-8').split(BARRIER)
    for number, text in enumerate(after):
      if not text.startswith(HARMLESS):
        yield path.name, number


@pytest.mark.slow
def test_every_missing_barrier_is_found(tmp_path):
  sources = tmp_path / 'src'
  shutil.copytree(emulated.SOURCES, sources)
  unseen = []
  for name, number in barriers():
    path = sources / 'gpu' / name
    text = path.read_text(encoding='utf-8')
    parts = text.split(BARRIER)
    parts[number : number + 2] = [';'.join(parts[number : number + 2])]
    path.write_text(BARRIER.join(parts), encoding='utf-8')
    program = emulated.build(tmp_path, '-O1', sources=sources)
    # Most are found in the first trials.
    if emulated.run(program, 1, 300).returncode == 0:
      unseen.append((name, number))
    path.write_text(text, encoding='utf-8')
  assert unseen == []


def test_kernels_include_no_header_of_cuda():
  folder = pathlib.Path(emulated.SOURCES, 'gpu')
  headers = {path.name for path in folder.glob('*.h')}
  for path in folder.iterdir():
    for line in path.read_text(encoding='utf-8').splitlines():
      if line.startswith('#include'):
        assert line[10:-1] in headers, path
