"""A copy of the project, and in it one mutant at a time."""

import contextlib
import os
import pathlib
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]


def copy(folder, part='.'):
  """Copies what git knows or does not ignore, and the native kernels.

  Args:
    folder: `pathlib.Path` of the copy.
    part: what to copy, relative to the root.
  """
  listed = subprocess.run(
    [
      'git',
      'ls-files',
      '-z',
      '--cached',
      '--others',
      '--exclude-standard',
      part,
    ],
    cwd=ROOT,
    capture_output=True,
    check=True,
  ).stdout.decode()
  kernels = ROOT.glob('terngrad/native/_kernels*')
  paths = [ROOT / name for name in listed.split('\0') if name]
  for path in (*paths, *kernels):
    if path.is_file():
      there = folder / path.relative_to(ROOT)
      there.parent.mkdir(parents=True, exist_ok=True)
      # With its time, so that compiled Python beside it stays good.
      shutil.copy2(path, there)


@contextlib.contextmanager
def mutated(path, mutation):
  """Has one mutant in a file for a while, then again what was there.

  Args:
    path: `pathlib.Path` of a source.
    mutation: `mutations.Mutation` of it.
  """
  source, times = path.read_bytes(), path.stat()
  later = times.st_mtime_ns + 10**10
  try:
    path.write_bytes(mutation.of(source))
    # Another time, so that Python does not take what it compiled before.
    os.utime(path, ns=(times.st_atime_ns, later))
    yield
  finally:
    path.write_bytes(source)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
