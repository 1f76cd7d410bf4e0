"""Trainers that meet in a rendezvous, one of which cannot begin."""

import pytest

from terngrad.cli import ports
from tests.bin import programs

pytestmark = [pytest.mark.slow, pytest.mark.cluster]


def test_a_process_that_fails_after_they_met_ends_the_other(data_dir, tmp_path):
  """A trainer without servers, whose second process has no data."""
  train_dir, none = tmp_path / 'train', tmp_path / 'none'
  started = [
    programs.Program(
      'terngrad.cli.main',
      [
        *('train', 'mnist', '--exchange=collective', '--cluster=rendezvous'),
        *programs.short_run_arguments(data, train_dir, num_gpus=1, num_nodes=2),
        *('--allow_insecure_network', '--start_timeout=600'),
        *(f'--rendezvous_dir={tmp_path / "meet"}', f'--task_id={i}'),
        *('--rendezvous_processes=2', f'--own_address=localhost:{port}'),
      ],
    )
    for i, (port, data) in enumerate(
      zip(ports.free(2), (data_dir, none), strict=True)
    )
  ]
  with started[0] as first, started[1] as second:
    failed, ended = second.wait(), first.wait()
  assert failed.code == 2 and str(none) in failed.error
  assert ended.code in (1, 2), ended.err
  assert 'received a failure of process 1: ' in ended.error
  assert str(none) in ended.error
