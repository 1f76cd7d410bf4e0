"""A copy of the scripts in a folder of their own, and stand-ins for Python."""

import os
import pathlib
import select
import shutil
import signal
import subprocess
import sys

import pytest

from tests.scripts import launcher

ROOT = pathlib.Path(__file__).resolve().parents[2]


_NUMBERS = signal.SIGHUP, signal.SIGINT, signal.SIGTERM


def _heed_signals():
  for number in _NUMBERS:
    signal.signal(number, signal.SIG_DFL)


class Project:
  """A project's scripts without its packages, in a folder with a space.

  Attributes:
    root: the folder.
    fifo: a named pipe, to hear from the stand-ins and to hold them up.
  """

  # seconds; far more than anything here takes
  TIMEOUT = 120

  def __init__(self, folder):
    self.root = folder / 'a project'
    shutil.copytree(ROOT / 'scripts', self.root / 'scripts')
    for path in (ROOT / 'experiments').glob('*/*.flags'):
      copy = self.root / path.relative_to(ROOT)
      copy.parent.mkdir(parents=True, exist_ok=True)
      shutil.copy(path, copy)
    (self.root / 'terngrad').mkdir()
    for name in ('setup.py', 'pyproject.toml', 'terngrad/version.py'):
      shutil.copy(ROOT / name, self.root / name)
    self.fifo = folder / 'fifo'
    os.mkfifo(self.fifo)
    # Open at both ends, so that no script waits for the other end.
    self.pipe = os.fdopen(os.open(self.fifo, os.O_RDWR), 'r+b', buffering=0)
    # Of the environment of all scripts. The launcher is this interpreter's.
    self.variables = {'TERNGRAD_PYTHON': sys.executable}
    self._log = folder / 'calls'
    self._folder = folder

  def program(self, path, body):
    """Writes an executable bash script that may use `record` and $fifo."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
      '#!/usr/bin/env bash\n'
      f"log='{self._log}' fifo='{self.fifo}'\n"
      # One write for a whole call, so that two callers cannot mix.
      'record() { printf "%s\\n" "$(printf "%s\\x1f" "$@")" >>"$log"; }\n'
      f'{body}\n'
    )
    path.chmod(0o755)
    return path

  def settle(self, seconds):
    """Gives tasks so long to end after a loss."""
    self.variables['TERNGRAD_SETTLE_SECONDS'] = seconds

  def heard(self):
    """Returns the next line that a stand-in wrote to $fifo."""
    ready, _, _ = select.select([self.pipe], [], [], self.TIMEOUT)
    assert ready, f'nothing was written to {self.fifo} for {self.TIMEOUT} s'
    return self.pipe.readline().decode().strip()

  def calls(self):
    """Returns the arguments of every recorded call."""
    if not self._log.exists():
      return []
    lines = self._log.read_text().splitlines()
    return [line.split('\x1f')[:-1] for line in lines]

  def start(self, script, *arguments, **variables):
    """Starts a script with these environment variables beside the usual."""
    environment = {
      'HOME': str(self._folder),
      'PATH': os.environ['PATH'],
      'LC_ALL': 'C',
    }
    environment |= self.variables | variables
    # What is ignored here (by nohup, or in a job in the background) would be
    # ignored by the script too, which could not change that. With a function
    # the whole process of TensorFlow is copied, which takes longer than bash.
    ignored = any(signal.getsignal(n) is signal.SIG_IGN for n in _NUMBERS)
    return subprocess.Popen(
      [str(self.root / 'scripts' / script), *arguments],
      cwd=self._folder,
      env={name: str(value) for name, value in environment.items()},
      stdin=subprocess.DEVNULL,
      stdout=subprocess.PIPE,
      stderr=subprocess.PIPE,
      text=True,
      preexec_fn=_heed_signals if ignored else None,
    )

  def run(self, script, *arguments, **variables):
    """Returns (status, standard output, standard error) of a whole run."""
    process = self.start(script, *arguments, **variables)
    out, err = process.communicate(timeout=self.TIMEOUT)
    return process.returncode, out, err


@pytest.fixture
def project(tmp_path):
  project = Project(tmp_path)
  yield project
  project.pipe.close()


@pytest.fixture
def cluster(project, tmp_path):
  cluster = launcher.Cluster(project, tmp_path)
  yield cluster
  for folder in cluster.workspace.iterdir():
    if folder.is_dir():
      cluster.run('--seconds=0', str(folder), script='kill_local.sh')
