"""scripts/run_single_*.sh and run_dist_cifar10.sh: 2017's settings."""

import os
import shlex
import shutil
import subprocess

import pytest

from terngrad.config import options
from tests.cli import starters

HOSTS = ('localhost:2222', 'localhost:2224,localhost:2226')
# What each script trains with.
SETTINGS = {
  'cifarnet': {
    'dataset_name': 'cifar10',
    'net': 'cifar10_alexnet',
    'image_size': 24,
    'optimizer': 'adam',
    'initial_learning_rate': 0.0002,
    'weight_decay': 0.004,
    'batch_size': 64,
    'max_steps': 300000,
    'grad_bits': 32,
  },
  'alexnet': {
    'dataset_name': 'imagenet',
    'net': 'alexnet',
    'optimizer': 'momentum',
    'initial_learning_rate': 0.02,
    'num_epochs_per_decay': 20.0,
    'weight_decay': 0.0005,
    'dropout_keep_prob': 0.5,
    'batch_size': 128,
    'max_steps': 185000,
    'grad_bits': 32,
  },
}


@pytest.fixture
def run(project, tmp_path):
  """Returns a function: (devices, configuration) of what a script starts."""
  python = project.program(
    tmp_path / 'python', 'record "$CUDA_VISIBLE_DEVICES" "$@"'
  )

  def run(script, *arguments):
    status, _, err = project.run(
      script, *arguments, PYTHON=python, WORKSPACE=tmp_path / 'w s'
    )
    assert (status, err) == (0, '')
    devices, dash_m, module, *words = project.calls()[-1]
    assert dash_m == '-m'
    return devices, starters.parse(module, words)

  return run


@pytest.mark.parametrize('name', SETTINGS)
def test_worker_trains_as_in_2017(run, tmp_path, name):
  devices, config = run(
    f'run_single_worker_{name}.sh', *HOSTS, 'worker', '1', '2,3', '/d $(x)', 'e'
  )
  expected = SETTINGS[name] | {
    'job_name': 'worker',
    'task_id': 1,
    'num_gpus': 2,
    'num_nodes': -1,
    'data_dir': '/d $(x)',
    'train_dir': str(tmp_path / 'w s' / 'e' / 'worker_1'),
    'ps_hosts': HOSTS[0],
    'worker_hosts': HOSTS[1],
  }
  assert options.by_name(config) | expected == options.by_name(config)
  assert devices == '2,3'
  config.validate()


@pytest.mark.parametrize(
  ('name', 'dataset'), [('cifar10', 'cifar10'), ('imagenet', 'imagenet')]
)
def test_server_is_one_of_the_same_run_without_gpu(run, name, dataset):
  devices, config = run(f'run_single_ps_{name}.sh', *HOSTS, 'ps', '0', 'e')
  assert (devices, config.cluster.job_name, config.cluster.task_id) == (
    '',
    'ps',
    0,
  )
  assert config.data.dataset_name == dataset
  config.validate()


def test_further_flags_come_last(run):
  words = (*HOSTS, 'worker', '0', '', '/d', 'e', '--grad_bits=1')
  devices, config = run('run_single_worker_cifarnet.sh', *words)
  assert (devices, config.codes.grad_bits, config.devices.num_gpus) == (
    '',
    1,
    1,
  )


def test_workers_without_servers_are_equal_processes(run, tmp_path):
  words = ('', HOSTS[1], 'worker', '1', '2,3', '/d', 'e', '--grad_bits=1')
  _, config = run('run_single_worker_cifarnet.sh', *words)
  config.validate()
  assert (config.cluster.exchange, config.devices.num_gpus) == ('collective', 2)
  # The batch is that of all.
  assert (config.num_workers, config.data.batch_size) == (4, 128)
  assert config.run.train_dir == str(tmp_path / 'w s' / 'e' / 'worker_1')
  assert (config.cluster.tasks.index, config.codes.grad_bits) == (1, 1)


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    (HOSTS, 'received: 2'),
    ((*HOSTS, 'ps', '0', '', '/d', 'e'), 'expected: worker'),
    ((*HOSTS, 'worker', 'x[$(touch executed)]', '', '/d', 'e'), 'no such task'),
  ],
)
def test_bad_arguments_are_refused(project, tmp_path, arguments, message):
  status, out, err = project.run('run_single_worker_alexnet.sh', *arguments)
  assert (status, out) == (2, '')
  assert message in err
  assert not (tmp_path / 'executed').exists()


@pytest.fixture
def cifar10(project, tmp_path):
  """Returns a function that runs run_dist_cifar10.sh; data has four shards."""
  data = tmp_path / 'my data'
  data.mkdir()
  (tmp_path / 'work space').mkdir()
  for number in range(4):
    (data / f'train-{number}').write_text('')
  python = project.program(
    tmp_path / 'python',
    # Two such names are equal where two networks are the same.
    'record "$(readlink /proc/self/ns/net)" "$@"\n'
    'echo >"$fifo"; exec sleep 600',
  )

  def run(*arguments, script='run_dist_cifar10.sh', **variables):
    usual = {
      'PYTHON': python,
      'DATA_DIR': data,
      'WORKSPACE': tmp_path / 'work space',
    }
    return project.run(script, *arguments, **(usual | variables))

  yield run
  for folder in (tmp_path / 'work space').iterdir():
    if folder.is_dir():
      run('--seconds=0', str(folder), script='kill_local.sh')


def test_server_and_two_workers_start_on_split_shards(
  project, cifar10, tmp_path
):
  status, out, _ = cifar10('--experiment=e', '--', '--grad_bits=1')
  assert status == 0
  for _ in range(3):
    project.heard()
  calls = [call for call in project.calls() if '--job_name=worker' in call]
  data = tmp_path / 'my data'
  found = {flag for call in calls for flag in call if 'data_dir' in flag}
  assert found == {f'--data_dir={data}/worker_{i}_of_2' for i in range(2)}
  assert all(call[-1] == '--grad_bits=1' for call in calls)
  assert sorted(os.listdir(data / 'worker_1_of_2')) == ['train-2', 'train-3']
  # The printed commands work as they are.
  for label, expected in (('state:', 'running'), ('stop:', 'stopped worker_1')):
    (line,) = [x for x in out.splitlines() if x.startswith(label)]
    output = subprocess.run(
      shlex.split(line.removeprefix(label)),
      capture_output=True,
      text=True,
      check=True,
      timeout=60,
    ).stdout
    assert expected in output


def can_unshare():
  words = ['unshare', '--map-root-user', '--net', 'ip', 'link', 'set', 'lo']
  return (
    shutil.which('unshare')
    and not subprocess.run(
      [*words, 'up'], capture_output=True, timeout=60
    ).returncode
  )


@pytest.mark.skipif(not can_unshare(), reason='no user namespaces, or no ip')
def test_tasks_have_a_separate_network(project, cifar10):
  cifar10('--experiment=e')
  for _ in range(3):
    project.heard()
  (network,) = {call[0] for call in project.calls()}
  assert network != os.readlink('/proc/self/ns/net')


def test_common_network_is_reported(project, cifar10, tmp_path):
  fake = project.program(tmp_path / 'bin' / 'unshare', 'exit 1')
  path = f'{fake.parent}:{os.environ["PATH"]}'
  status, _, err = cifar10('--experiment=e', PATH=path)
  assert status == 0
  assert 'no private network' in err
  for _ in range(3):
    project.heard()
  (network,) = {call[0] for call in project.calls()}
  assert network == os.readlink('/proc/self/ns/net')


def test_dry_run_splits_and_starts_nothing(project, cifar10, tmp_path):
  status, out, err = cifar10('--dry_run')
  assert (status, err, len(out.splitlines())) == (0, '', 3)
  assert not (tmp_path / 'my data' / 'worker_0_of_2').exists()
  assert project.calls() == []
