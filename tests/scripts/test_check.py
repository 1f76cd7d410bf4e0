"""scripts/run_dist.sh --check: versions and GPUs of every host."""

import re
import sys

import pytest

from terngrad import version
from tests.bin import programs
from tests.scripts import launcher

VERSIONS = 'terngrad 1, TensorFlow 2.20.0, Python 3.11'


@pytest.fixture
def interpreter(cluster):
  """Writes the interpreter of all hosts; `body` may look at $host."""

  def write(body):
    # Which host it is, only the fake ssh knows.
    text = cluster.ssh.read_text().replace('exec sh', 'export host=$2\nexec sh')
    cluster.ssh.write_text(text)
    cluster.project.program(
      cluster.project.root / '.venv' / 'bin' / 'python',
      f'host=${{host:-}} v="{VERSIONS}"\n{launcher.GPUS}{body}',
    )

  return write


def assert_nothing_started(cluster):
  assert cluster.project.calls() == []
  assert list(cluster.workspace.iterdir()) == []


@pytest.mark.parametrize(
  ('hosts', 'names'),
  [
    (launcher.LOCAL, ['localhost', '::1', '127.0.0.2']),
    (launcher.HOSTS, ['one', 'two', 'three.example']),
  ],
)
def test_versions_and_gpus_of_every_task_are_printed(
  cluster, interpreter, hosts, names
):
  interpreter('[[ "$*" == "-m terngrad.bin.versions" ]]\necho "$v; $gpus GPUs"')
  cluster.write(hosts)
  status, out, err = cluster.run('--check')
  assert (status, err) == (0, '')
  assert out == (
    f'ps_0 on {names[0]}: {VERSIONS}; 0 GPUs\n'
    f'worker_0 on {names[1]}: {VERSIONS}; 0 GPUs\n'
    f'worker_1 on {names[2]}: {VERSIONS}; 2 GPUs\n'
    'all tasks can start\n'
  )
  assert_nothing_started(cluster)


@pytest.mark.parametrize(
  'other',
  [
    'terngrad 2, TensorFlow 2.20.0, Python 3.11',
    'terngrad 1, TensorFlow 2.21.0, Python 3.11',
    'terngrad 1, TensorFlow 2.20.0, Python 3.12',
  ],
)
def test_a_host_of_other_versions_is_named(cluster, interpreter, other):
  interpreter(f'[[ $host != two ]] || v="{other}"\necho "$v; $gpus GPUs"')
  cluster.write(launcher.HOSTS)
  status, out, err = cluster.run('--check')
  assert status == 2
  assert 'all tasks can start' not in out
  assert f'expected: {VERSIONS} on every host' in err
  assert f'received: worker_0 on two: {other}' in err
  assert 'remedy:   install the same versions' in err
  assert_nothing_started(cluster)


@pytest.mark.parametrize(
  ('body', 'message'),
  [
    (
      '((gpus < 2)) || gpus=1\necho "$v; $gpus GPUs"',
      'worker_1 on three.example: WORKER_DEVICES: expected the GPUs 0,1, '
      'received 1 of 2',
    ),
    (
      '[[ $host == two ]] && echo "No module named terngrad" && exit 1\n'
      'echo "$v; $gpus GPUs"',
      'worker_0 on two: expected an interpreter with terngrad, received '
      '[^\n]*/.venv/bin/python: No module named terngrad',
    ),
    (
      '[[ $host == one ]] && exit 3\necho "$v; $gpus GPUs"',
      'ps_0 on one: expected an interpreter [^\n]*: status 3',
    ),
  ],
)
def test_a_task_that_cannot_run_is_named(cluster, interpreter, body, message):
  interpreter(body)
  cluster.write(launcher.HOSTS)
  status, out, err = cluster.run('--check')
  assert (status, out) == (2, '')
  assert re.search(message, err), err
  assert_nothing_started(cluster)


def test_a_host_without_interpreter_is_named(cluster):
  status, _, err = cluster.run('--check')
  assert status == 2
  assert 'ps_0 on localhost: expected an interpreter with terngrad' in err
  assert 'run scripts/setup.sh there' in err


def test_other_output_of_a_shell_is_ignored(cluster, interpreter):
  interpreter('echo "$v; $gpus GPUs"')
  text = cluster.ssh.read_text()
  cluster.ssh.write_text(text.replace('exec sh', 'echo Welcome.\nexec sh'))
  cluster.write(launcher.HOSTS)
  status, out, err = cluster.run('--check')
  assert (status, err) == (0, '')
  assert f'ps_0 on one: {VERSIONS}; 0 GPUs' in out


def test_the_program_prints_the_versions():
  finished = programs.run('versions')
  assert finished.code == 0, finished
  major, minor = sys.version_info[:2]
  assert re.fullmatch(
    rf'terngrad {re.escape(version.__version__)}, TensorFlow 2\.\S+, '
    rf'Python {major}\.{minor}; \d+ GPUs\n',
    finished.out,
  )
