"""Runs that a real Slurm of one node starts, in daemons of their own."""

import contextlib
import getpass
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading

import pytest

from terngrad.cli import ports
from tests.bin import clusters
from tests.bin import programs
from tests.slim import archives_made

pytestmark = [
  pytest.mark.slow,
  pytest.mark.cluster,
  pytest.mark.skipif(
    not all(map(shutil.which, ('munged', 'slurmctld', 'slurmd', 'srun'))),
    reason='needs slurmctld, slurmd and munge',
  ),
]
_ROOT = pathlib.Path(__file__).resolve().parents[2]
_STEPS = 6
_CONFIGURATION = """
ClusterName=terngrad
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmdPort={node_port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
# Four tasks, however many cores there are.
SlurmdParameters=config_overrides
NodeName=localhost NodeHostname={host} NodeAddr=127.0.0.1 CPUs=4
PartitionName=all Nodes=ALL Default=YES State=UP
"""


@contextlib.contextmanager
def daemon(pattern, *command):
  """A process that has said `pattern` and runs until the end of the block."""
  with subprocess.Popen(
    command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
  ) as process:
    # So that no pipe is full.
    drain = threading.Thread(target=process.stdout.read)
    lines = []
    try:
      for line in process.stdout:
        lines.append(line)
        if re.search(pattern, line):
          break
      else:
        raise AssertionError(f'{command[0]} ended: {lines}')
      drain.start()
      yield
    finally:
      process.terminate()
      if drain.ident:
        drain.join()


@pytest.fixture(scope='module')
def slurm():
  """Variables by which programs find a cluster of one node, localhost."""
  port, node_port = ports.free(2)
  # Of a short name: that of a socket has at most 107 bytes.
  with contextlib.ExitStack() as stack:
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix='slurm'))
    key, conf = (pathlib.Path(folder, n) for n in ('munge.key', 'slurm.conf'))
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    for name in ('state', 'spool'):
      pathlib.Path(folder, name).mkdir()
    conf.write_text(
      _CONFIGURATION.format(
        host=socket.gethostname().partition('.')[0],
        port=port,
        node_port=node_port,
        folder=folder,
        user=getpass.getuser(),
      )
    )
    munge = {
      name: f'--{name}={folder}/munge.{name.partition("-")[0]}'
      for name in ('socket', 'key-file', 'log-file', 'pid-file', 'seed-file')
    }
    stack.enter_context(
      daemon(
        'work thread', 'munged', '--foreground', '--force', *munge.values()
      )
    )
    for name, pattern in (
      ('slurmctld', 'Running as primary controller'),
      ('slurmd', 'slurmd started'),
    ):
      stack.enter_context(daemon(pattern, name, '-D', '-f', str(conf)))
    found = {'SLURM_CONF': str(conf), 'PYTHON': sys.executable} | programs.QUIET
    # What a failed test left.
    stack.callback(run, found, 'scancel', f'--user={getpass.getuser()}')
    yield found


def run(slurm, *words, **variables):
  done = subprocess.run(
    list(map(str, words)),
    env=os.environ | slurm | variables,
    capture_output=True,
    text=True,
    check=False,
    timeout=programs.LIMIT,
    cwd=_ROOT,
  )
  assert done.returncode == 0, done


def first_of(count):
  """The lowest of so many free ports beside each other."""
  while True:
    (port,) = ports.free(1)
    with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
      for above in range(1, count):
        opened = stack.enter_context(socket.socket())
        opened.bind(('', port + above))
      return port


def test_a_batch_script_starts_equal_processes_that_end_at_the_bits_of_towers(
  slurm, tmp_path
):
  """scripts/cluster/slurm.sh as it is, but for a smaller run."""
  source, data = tmp_path / 'source', tmp_path / 'data'
  source.mkdir()
  (source / 'cifar-10-binary.tar.gz').write_bytes(
    archives_made.cifar_binary(archives_made.cifar())
  )
  done = programs.run(
    'slim.download_and_convert_data',
    *programs.as_flags(
      dataset_name='cifar10', dataset_dir=data, source_dir=source
    ),
    '--noverify_checksums',
  )
  assert done.code == 0, done.err
  smaller = ['--net=lenet', '--batch_size=8', f'--max_steps={_STEPS}']
  run(
    slurm,
    *('sbatch', '--wait', '--nodes=1', '--ntasks-per-node=2'),
    *(f'--output={tmp_path}/log', 'scripts/cluster/slurm.sh', *smaller),
    f'--cluster_port={first_of(2)}',
    DATA_DIR=str(data),
    TRAIN_DIR=str(tmp_path / 'slurm'),
  )
  done = programs.run(
    'cifar10_train',
    f'--flagfile={_ROOT}/experiments/cifar10/base.flags',
    *('--grad_bits=1', '--clip_factor=2.5', '--num_gpus=1', '--num_nodes=2'),
    *programs.as_flags(data_dir=data, train_dir=tmp_path / 'towers'),
    *smaller,
  )
  assert done.code == 0, done.err
  check(tmp_path)


def test_the_first_task_of_a_job_step_is_the_parameter_server(
  slurm, data_dir, tmp_path
):
  run(
    slurm,
    *('srun', '--ntasks=3', '--kill-on-bad-exit=1', sys.executable),
    *('-m', 'terngrad.bin.mnist_distributed_train', '--cluster=slurm:1'),
    f'--cluster_port={first_of(3)}',
    *clusters.arguments(data_dir, tmp_path / 'slurm', steps=_STEPS),
  )
  clusters.towers(data_dir, tmp_path / 'towers', 2, steps=_STEPS)
  check(tmp_path)


def check(folder):
  """Fails unless parameters are those of two nodes of one process."""
  found = []
  for name in ('slurm', 'towers'):
    values = programs.tensors(folder / name / f'model.ckpt-{_STEPS}')
    found.append({k: v for k, v in values.items() if k.startswith('tower_0/')})
  assert found[0] and found[0] == found[1]
