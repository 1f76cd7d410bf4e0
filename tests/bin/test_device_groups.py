"""Processes whose devices are one worker each: their bits and their bytes."""

import os
import subprocess
import sys

import pytest

from tests.bin import clusters
from tests.bin import programs
from tests.bin import test_collective
from tests.bin import test_distributed_train
from tests.exchange import processes
from tests.scripts import test_single

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

LOCAL = {'local_steps': 4, **test_collective.FRAGMENTS}
CODE = {'codec': 'error_feedback+bidirectional+ternary', 'batch_size': 32}


@pytest.mark.parametrize('changes', [CODE, CODE | LOCAL], ids=['one', 'local'])
def test_processes_of_two_devices_equal_groups_of_one_process(
  changes, data_dir, tmp_path
):
  changes = {'devices_per_worker': 2, 'grad_bits': 32, **changes}
  # Otherwise each process stores two devices, and one process stores four. All
  # are compared before they are stored.
  changes |= {'clip_factor': 0.0, 'save_tower': 0}
  words = test_collective.arguments(
    *(data_dir, tmp_path / 'towers', []),
    exchange='towers',
    num_gpus=4,
    **changes,
  )
  finished = programs.run('mnist_train', *words)
  assert finished.code == 0, finished.err
  ended = test_collective.run_all(
    2, data_dir, tmp_path / 'run', num_gpus=2, **changes
  )
  assert [one.code for one in ended] == [0, 0], ended
  test_collective.assert_same_run(tmp_path / 'run', tmp_path / 'towers')
  assert 'workers: 2 of 2 devices each' in ended[0].log


def test_servers_and_groups_of_one_process_end_at_the_same_bits(
  data_dir, tmp_path
):
  arguments = [
    *clusters.arguments(data_dir, tmp_path / 'servers'),
    *('--num_gpus=2', '--devices_per_worker=2'),
  ]
  with clusters.Cluster(1, 2, arguments) as cluster:
    cluster.start_all()
    groups = {'num_gpus': 4, 'devices_per_worker': 2}
    clusters.towers(data_dir, tmp_path / 'towers', 2, **groups)
    finished = cluster.wait()
  assert {f.code for f in finished.values()} == {0}, finished
  test_distributed_train.assert_equal_bits(
    tmp_path / 'towers', tmp_path / 'servers'
  )


# Runs two processes in a network of their own and prints what it carried.
COUNTED = """
import sys
from terngrad.measure.processes import exchanges
from tests.bin import test_collective

ended = test_collective.run_all(2, *sys.argv[1:3], **dict(
  word.split('=') for word in sys.argv[3:]))
assert [one.code for one in ended] == [0, 0], ended
print(exchanges.interface_bytes('lo')[0])
"""


def interface_bytes(data_dir, train_dir, **changes):
  """Bytes of a run of two processes of two devices."""
  options = {'num_gpus': 2, 'collective': 'gather', **changes}
  words = [f'{name}={value}' for name, value in options.items()]
  done = subprocess.run(
    [
      *('unshare', '--map-root-user', '--net', 'bash', '-c'),
      *('ip link set lo up && exec "$@"', 'bash', sys.executable, '-c'),
      *(COUNTED, str(data_dir), str(train_dir), *words),
    ],
    env=os.environ | programs.QUIET | {'PYTHONPATH': str(processes.ROOT)},
    capture_output=True,
    text=True,
    timeout=programs.LIMIT,
  )
  assert done.returncode == 0, done.stderr
  return int(done.stdout.split()[-1])


@pytest.mark.skipif(
  not test_single.can_unshare(), reason='no user namespaces, or no ip'
)
def test_the_interface_carries_half_of_what_single_devices_send(
  data_dir, tmp_path
):
  sent = {}
  for size in (1, 2):
    # The start of a run sends parameters; more steps send only codes.
    few, many = (
      interface_bytes(
        data_dir,
        tmp_path / f'{size} {steps}',
        **{'max_steps': steps, 'save_iter': steps, 'devices_per_worker': size},
      )
      for steps in (10, 110)
    )
    sent[size] = (many - few) / 100
  # LeNet has 1,663,370 parameters in payloads of 20 digits a word.
  assert 0.48 < sent[2] / sent[1] < 0.53, sent
