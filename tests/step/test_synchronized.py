"""Batch normalisation by the examples of all workers at once."""

import pathlib
import subprocess
import sys

import numpy as np
import pytest

from terngrad.exchange import inside
from terngrad.exchange import towers
from tests.step import small

ROOT = pathlib.Path(__file__).parents[2]


def training(workers, **changes):
  options = {'codec': 'identity', 'synchronize': True} | changes
  return small.Training(
    small.conv_net, devices=workers, workers=workers, **options
  )


def floats(run):
  return run.values().view(np.float32)


@pytest.mark.parametrize('workers', [2, 3])
def test_workers_together_train_as_one_with_all_examples(workers):
  together, alone = training(workers, batch=12), training(1, batch=12)
  for run in (together, alone):
    run.run(4)
  np.testing.assert_allclose(
    floats(together), floats(alone), rtol=2e-4, atol=2e-6
  )


def test_workers_apart_do_not():
  apart, alone = training(2, synchronize=False), training(1)
  for run in (apart, alone):
    run.run(4)
  assert np.abs(floats(apart) - floats(alone)).max() > 1e-3


def test_replicas_stay_equal_and_runs_repeat_with_ternary_gradients():
  first, second = (training(2, codec='ternary') for _ in range(2))
  for run in (first, second):
    run.run(5)
  np.testing.assert_array_equal(first.values(0), first.values(1))
  np.testing.assert_array_equal(first.values(), second.values())


def test_several_workers_of_a_device_are_refused():
  with pytest.raises(ValueError, match='one worker a device, 2 in all.* 4'):
    inside.Inside(towers.Towers(('/CPU:0', '/CPU:1'), 4))


def test_a_worker_that_fails_leaves_no_other_waiting():
  # In a process of its own, whose collectives are of no use afterwards.
  program = [sys.executable, '-m', 'tests.step.fail_inside']
  done = subprocess.run(
    program, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
  )
  assert done.stdout == 'began\nfailed\n', done.stderr
