"""What libraries write to standard error is held back, and not for good."""

import os
import pathlib
import subprocess
import sys

import pytest

from terngrad.machine import onednn

ROOT = pathlib.Path(__file__).resolve().parents[2]

# From Python, by the descriptor, from C and from another process; the first
# without the end of its line.
WRITE = """
import ctypes, os, sys
from terngrad import quiet
def write():
  sys.stderr.write('python ')
  os.write(2, b'descriptor ')
  libc = ctypes.CDLL(None)
  libc.dprintf(2, b'C ')
  os.system('printf "process " >&2')
"""

TENSORFLOW = """
import os
class config:
  def list_physical_devices():
    os.write(2, b'devices at level %s\\n' % os.environ['LEVEL'].encode())
os.write(2, b'start\\n')
"""


def stderr_of(script, folder=ROOT, **environment):
  """What a script writes there; its process has no TensorFlow."""
  done = subprocess.run(
    [sys.executable, '-c', script],
    stdout=subprocess.DEVNULL,
    stderr=subprocess.PIPE,
    check=False,
    text=True,
    timeout=600,
    env=os.environ
    # With it Python would keep nothing back by itself.
    | {'PYTHONPATH': f'{folder}:{ROOT}', 'PYTHONUNBUFFERED': ''}
    | environment,
  )
  return done.stderr


def test_output_in_the_block_is_dropped():
  script = """
sys.stderr.write('before ')
with quiet.suppressed_stderr():
  write()
sys.stderr.write('after')
"""
  assert stderr_of(WRITE + script) == 'before after'


def test_output_after_the_block_is_written():
  script = 'with quiet.suppressed_stderr(): pass\nwrite()\nsys.stderr.flush()'
  assert sorted(stderr_of(WRITE + script).split()) == [
    'C',
    'descriptor',
    'process',
    'python',
  ]


def test_suppressed_output_is_written_if_the_block_raises():
  script = """
try:
  with quiet.suppressed_stderr():
    write()
    raise KeyboardInterrupt
except KeyboardInterrupt:
  sys.stderr.write(' after')
"""
  held, after = stderr_of(WRITE + script).rsplit(maxsplit=1)
  assert sorted(held.split()) == ['C', 'descriptor', 'process', 'python']
  assert after == 'after'


def test_no_descriptor_stays_open():
  script = """
before = len(os.listdir('/proc/self/fd'))
for fails in (False, True):
  try:
    with quiet.suppressed_stderr():
      assert not fails
  except AssertionError:
    pass
sys.stderr.write(str(len(os.listdir('/proc/self/fd')) - before))
"""
  assert stderr_of(WRITE + script) == '0'


@pytest.fixture
def stand_in(tmp_path):
  """A folder with a module `tensorflow` that talks while it starts."""

  def write(text):
    (tmp_path / 'tensorflow.py').write_text(
      text.replace('LEVEL', 'TF_CPP_MIN_LOG_LEVEL')
    )
    return tmp_path

  return write


IMPORT = 'from terngrad import quiet\nquiet.import_tensorflow'
SHOW = 'from terngrad import quiet; quiet.show_messages()'


def test_the_start_of_tensorflow_is_shown_only_when_asked_for(stand_in):
  folder = stand_in(TENSORFLOW)
  assert stderr_of(f'{IMPORT}()', folder) == ''
  assert (
    stderr_of(f'{SHOW}; {IMPORT}()', folder, TF_CPP_MIN_LOG_LEVEL='3')
    == 'start\ndevices at level 0\n'
  )


def test_a_server_of_runs_that_imports_tensorflow_writes_nothing(stand_in):
  folder = stand_in(TENSORFLOW)
  (folder / 'keras.py').write_text('import tensorflow')
  assert stderr_of('import terngrad.sweep.preload', folder) == ''


def test_child_processes_show_the_start_of_tensorflow_too(stand_in):
  folder = stand_in(TENSORFLOW)
  words = [sys.executable, '-c', f'{IMPORT}()']
  script = f'{SHOW}\nimport subprocess\nsubprocess.run({words!r}, check=True)'
  assert stderr_of(script, folder) == 'start\ndevices at level 0\n'


def test_a_log_level_set_by_the_user_is_not_changed(stand_in):
  folder = stand_in(TENSORFLOW)
  script = (
    'import os, sys\n{}\n'
    + f'{IMPORT}()\n'
    + 'sys.stderr.write(os.environ["TF_CPP_MIN_LOG_LEVEL"])'
  )
  unset = 'os.environ.pop("TF_CPP_MIN_LOG_LEVEL", None)'
  assert stderr_of(script.format(unset), folder) == '3'
  assert stderr_of(script.format(''), folder, TF_CPP_MIN_LOG_LEVEL='2') == '2'


@pytest.mark.parametrize(
  ('machine', 'given', 'expected'),
  [
    ('x86_64', None, '1'),
    ('x86_64', '0', '0'),
    ('x86_64', '1', '1'),
    ('aarch64', None, 'None'),
  ],
)
def test_onednn_is_on_unless_the_user_decides(
  stand_in, machine, given, expected
):
  # What the import itself finds in the environment.
  find = f'import os\nfound = os.environ.get({onednn.VARIABLE!r})\n'
  folder = stand_in(find + TENSORFLOW)
  script = (
    'import os, platform, sys\n'
    f'os.environ.pop({onednn.VARIABLE!r}, None)\n'
    f'given = {given!r}\n'
    f'if given: os.environ[{onednn.VARIABLE!r}] = given\n'
    f'platform.machine = lambda: {machine!r}\n'
    f'{IMPORT}()\n'
    'import tensorflow\n'
    'sys.stderr.write(str(tensorflow.found))\n'
  )
  assert stderr_of(script, folder) == expected


def test_programs_start_silently_without_what_only_notebooks_need():
  """Of 7.5 seconds these packages take 3.3."""
  names = ['jax', 'matplotlib', 'pandas', 'sklearn']
  script = (
    'import os, sys\nos.environ.pop("TF_CPP_MIN_LOG_LEVEL", None)\n'
    'from terngrad.cli import main\n'
    'assert main.run(["report", "versions"]) == 0\nimport keras\n'
    f'found = [name for name in {names} if name in sys.modules]\n'
    # The programs themselves can import them.
    'import matplotlib, pandas\n'
    'sys.stderr.write(f"{found} {pandas.__name__}")'
  )
  assert stderr_of(script, KERAS_BACKEND='tensorflow') == '[] pandas'


def test_a_failing_import_prints_the_suppressed_messages(stand_in):
  folder = stand_in(f'{TENSORFLOW}\nraise ImportError("no such library")')
  said = stderr_of(f'{IMPORT}()', folder)
  assert said.startswith('start\n')
  assert said.endswith('ImportError: no such library\n')
