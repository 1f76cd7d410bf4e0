"""Whole runs that the launcher starts: real processes on this machine."""

import os
import pathlib
import re
import select
import signal
import subprocess
import sys
import time

import pytest

from slim.datasets import converters
from slim.datasets.records import sharding
from slim.datasets.small_images import arrays
from slim.datasets.small_images import convert_arrays
from tests.bin import programs
from tests.exchange import processes
from tests.scripts import test_single
from tests.slim import archives_made

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Seconds that a whole run may take; some ten times what it takes alone.
LIMIT = 900
STEPS, SAVE_ITER = 120, 20


@pytest.fixture(scope='module')
def data_dir(tmp_path_factory):
  """40 training images in two files, and 8 to test, like CIFAR-10's."""
  folder = tmp_path_factory.mktemp('data')
  source = folder / 'source'
  source.mkdir()
  archive = archives_made.cifar_binary(archives_made.cifar(count=8))
  (source / 'cifar-10-binary.tar.gz').write_bytes(archive)
  converters.convert(
    'cifar10',
    converters.ConversionRequest(
      dataset_dir=str(folder / 'cifar10'),
      source='auto',
      request=arrays.SourceOptions(str(source), False),
      layout=convert_arrays.FileLayout(True, 2),
      options=sharding.ConversionOptions(),
      validation_images=0,
    ),
  )
  return folder / 'cifar10'


def start(script, *arguments, **variables):
  return subprocess.Popen(
    [ROOT / 'scripts' / script, *map(str, arguments)],
    env=os.environ
    | {'PYTHON': sys.executable, 'PYTHONPATH': str(ROOT)}
    | {name: str(value) for name, value in variables.items()},
    stdin=subprocess.DEVNULL,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  )


def run(script, *arguments, **variables):
  """Returns (status, standard output, standard error)."""
  process = start(script, *arguments, **variables)
  out, err = process.communicate(timeout=LIMIT)
  return process.returncode, out, err


def wait_until(there, process=None):
  """Waits until `there()`, as long as the process lives."""
  end = time.monotonic() + LIMIT
  while not there():
    assert process is None or process.poll() is None, process.communicate()
    assert time.monotonic() < end
    select.select([], [], [], 0.05)  # lets the others run


@pytest.fixture
def workspace(tmp_path):
  """A folder for experiments, whose tasks end with the test."""
  folder = tmp_path / 'results'
  folder.mkdir()
  yield folder
  for experiment in folder.iterdir():
    if experiment.is_dir():
      run('kill_local.sh', '--seconds=0', experiment)


@pytest.fixture
def config(data_dir, workspace, tmp_path):
  """The configuration of two equal processes."""
  hosts = ' '.join(processes.addresses(2))
  path = tmp_path / 'config'
  path.write_text(
    f"PS_HOSTS=()\nWORKER_HOSTS=({hosts})\nWORKER_DEVICES=('' '')\n"
    f"DATA_DIR=('{data_dir}' '{data_dir}')\nWORKSPACE='{workspace}'\n"
    'WORKER_SCRIPT=run_single_worker_cifarnet.sh\n'
    'PS_SCRIPT=run_single_ps_cifar10.sh\nALLOW_INSECURE_NETWORK=false\n'
  )
  return path


def arguments(config, experiment, restarts):
  return [
    *(f'--config={config}', f'--experiment={experiment}'),
    *(f'--restart={restarts}', '--', '--grad_bits=1', '--clip_factor=2.5'),
    *('--batch_size=4', f'--max_steps={STEPS}', f'--save_iter={SAVE_ITER}'),
    '--start_timeout=240',
  ]


def test_a_killed_process_is_restarted_and_the_bits_are_the_same(
  config, workspace
):
  status, out, err = run('run_dist.sh', *arguments(config, 'calm', 0))
  assert (status, err) == (0, ''), out
  chief = workspace / 'disturbed' / 'worker_0'
  with start('run_dist.sh', *arguments(config, 'disturbed', 3)) as process:
    try:
      wait_until(
        lambda: (
          chief.exists() and SAVE_ITER in programs.checkpoint_steps(chief)
        ),
        process,
      )
      text = (workspace / 'disturbed' / 'worker_1.pid').read_text()
      os.kill(int(text.split()[0]), signal.SIGKILL)
      out, err = process.communicate(timeout=LIMIT)
    finally:
      process.terminate()
  assert (process.returncode, err) == (0, ''), out
  assert re.search(r'ended \(exit code (137|75)\); restart 1 of 3', out)
  log = (workspace / 'disturbed' / 'worker_0.log').read_text()
  assert re.search(r'continuing after step \d+', log)
  last = f'model.ckpt-{STEPS}'
  expected = programs.tensors(workspace / 'calm' / 'worker_0' / last)
  assert programs.tensors(chief / last) == expected


@pytest.mark.skipif(
  not test_single.can_unshare(), reason='no user namespaces, or no ip'
)
def test_a_server_and_two_workers_train_in_a_separate_network(
  data_dir, workspace, tmp_path
):
  status, out, err = run(
    'run_dist_cifar10.sh',
    *('--experiment=e', '--', '--grad_bits=1', '--clip_factor=2.5'),
    *('--batch_size=4', '--max_steps=4', '--save_iter=2'),
    DATA_DIR=data_dir,
    WORKSPACE=workspace,
  )
  assert (status, err) == (0, ''), out
  codes = [workspace / 'e' / f'{t}.code' for t in ('ps_0', 'worker_0')]
  wait_until(lambda: all(path.exists() for path in codes))
  log = (workspace / 'e' / 'worker_0.log').read_text()
  assert [path.read_text() for path in codes] == ['0\n', '0\n'], log
  chief = workspace / 'e' / 'worker_0'
  assert programs.checkpoint_steps(chief)[-1] == 4
  evaluated = programs.run(
    'cifar10_eval',
    *(f'--data_dir={data_dir}', f'--checkpoint_dir={chief}'),
    *(f'--eval_dir={tmp_path / "eval"}', '--run_once', '--num_examples=8'),
    '--batch_size=4',
  )
  assert evaluated.code == 0, evaluated.err
  assert 'precision @ 1' in evaluated.out
