"""A disk that is soon full, for tests that run as root."""

import contextlib
import os
import subprocess

import pytest


@contextlib.contextmanager
def mounted(folder, kilobytes):
  """Mounts a tmpfs of that size on a new folder."""
  folder.mkdir()
  if os.geteuid():
    pytest.skip('mounting a small disk needs root')
  command = ['mount', '-t', 'tmpfs', '-o', f'size={kilobytes}k']
  done = subprocess.run(
    [*command, 'tmpfs', str(folder)], capture_output=True, check=False
  )
  if done.returncode:
    pytest.skip(f'no tmpfs can be mounted here: {done.stderr.decode()}')
  try:
    yield folder
  finally:
    subprocess.run(['umount', str(folder)], check=True)


def grow(folder, kilobytes):
  """Makes a mounted disk that large."""
  subprocess.run(
    ['mount', '-o', f'remount,size={kilobytes}k', str(folder)], check=True
  )
