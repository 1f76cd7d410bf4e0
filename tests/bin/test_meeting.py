"""Processes that meet by Redis or under mpirun, and train to equal bits."""

import os
import shutil
import subprocess
import sys

import pytest

from terngrad.cli import ports
from tests.bin import clusters
from tests.bin import programs
from tests.cluster import test_redis_rendezvous as redis_servers

pytestmark = [pytest.mark.slow, pytest.mark.cluster]


def trainer(data_dir, train_dir, *more):
  return [
    *('train', 'mnist', '--exchange=collective', '--allow_insecure_network'),
    *programs.short_run_arguments(data_dir, train_dir, num_gpus=1, num_nodes=2),
    *('--codec=ternary', *more),
  ]


def check(train_dir, data_dir, tmp_path):
  """Fails unless parameters are those of two nodes of one process."""
  alone = tmp_path / 'alone'
  words = programs.short_run_arguments(data_dir, alone, num_gpus=1, num_nodes=2)
  done = programs.run('mnist_train', *words, '--codec=ternary')
  assert done.code == 0, done.err
  found = []
  for folder in (train_dir, alone):
    assert programs.checkpoint_steps(folder)[-1] == 4
    values = programs.tensors(folder / 'model.ckpt-4')
    found.append({k: v for k, v in values.items() if k.startswith('tower_0/')})
  assert found[0] == found[1] and found[0]


@pytest.mark.skipif(not shutil.which('mpirun'), reason='needs mpirun')
def test_mpirun_sets_the_ranks_and_a_folder_shares_the_addresses(
  data_dir, tmp_path
):
  train_dir = tmp_path / 'train'
  words = trainer(
    *(
      data_dir,
      train_dir,
      '--cluster=mpi',
      f'--cluster_port={clusters.pair()}',
    ),
    f'--rendezvous_dir={tmp_path / "meet"}',
  )
  done = subprocess.run(
    [
      *('mpirun', '--allow-run-as-root', '--oversubscribe', '-n', '2'),
      # Bits of a matrix product depend on how many threads compute it.
      *('--bind-to', 'none'),
      *(sys.executable, '-m', 'terngrad.cli.main', *words),
    ],
    env=os.environ | programs.QUIET,
    capture_output=True,
    text=True,
    timeout=programs.LIMIT,
    check=False,
  )
  assert done.returncode == 0, done.stderr
  check(train_dir, data_dir, tmp_path)


def test_a_redis_server_shares_the_addresses_and_is_not_needed_later(
  data_dir, tmp_path
):
  train_dir = tmp_path / 'train'
  hosts = [f'localhost:{port}' for port in ports.free(2)]
  with redis_servers.serving(tmp_path) as (process, url):
    started = [
      programs.Program(
        'terngrad.cli.main',
        trainer(
          *(data_dir, train_dir, f'--cluster=redis:{url}', '--run_id=a-run'),
          *('--rendezvous_processes=2', f'--task_id={i}'),
          f'--own_address={host}',
        ),
      )
      for i, host in enumerate(hosts)
    ]
    with started[0] as first, started[1] as second:
      first.read_until('step 1|step 0|examples/sec')
      process.kill()
      for program in (first, second):
        done = program.wait()
        assert done.code == 0, done.err
  check(train_dir, data_dir, tmp_path)
