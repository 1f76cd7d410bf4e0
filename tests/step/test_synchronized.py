"""Batch normalisation by the examples of all workers at once."""

import numpy as np
import pytest

from terngrad.exchange import layer_collectives
from terngrad.exchange import towers
from tests import forked
from tests.step import small


def training(workers, **changes):
  options = {'codec': 'identity', 'synchronize': True} | changes
  return small.Training(
    small.conv_net, devices=workers, workers=workers, **options
  )


def alone_at_its_start():
  return small.at_its_start(
    small.conv_net,
    devices=1,
    workers=1,
    batch=12,
    codec='identity',
    synchronize=True,
  )


def floats(run):
  return run.values().view(np.float32)


@pytest.mark.parametrize(
  'workers', [2, pytest.param(3, marks=pytest.mark.slow)]
)
def test_synchronized_workers_train_like_one_worker_with_all_examples(workers):
  synchronized = training(workers, batch=12)
  alone = alone_at_its_start()
  for run in (synchronized, alone):
    run.run(4)
  np.testing.assert_allclose(
    floats(synchronized), floats(alone), rtol=2e-4, atol=2e-6
  )


@pytest.mark.usefixtures('eager_functions')
def test_workers_without_synchronization_do_not():
  local = training(2, batch=12, synchronize=False)
  alone = alone_at_its_start()
  for run in (local, alone):
    run.run(4)
  assert np.abs(floats(local) - floats(alone)).max() > 1e-3


def test_replicas_stay_equal_and_runs_repeat_with_ternary_gradients():
  values = []
  for _ in range(2):
    run = small.at_its_start(
      small.conv_net, devices=2, workers=2, synchronize=True, on_kernels=True
    )
    run.run(5)
    np.testing.assert_array_equal(run.values(0), run.values(1))
    values.append(run.values())
  np.testing.assert_array_equal(*values)


def test_several_workers_of_a_device_are_refused():
  with pytest.raises(ValueError, match='one worker per device, 2 in total.* 4'):
    layer_collectives.LayerCollectives(towers.Towers(('/CPU:0', '/CPU:1'), 4))


def test_a_worker_that_fails_ends_the_wait_of_the_others():
  # In a process of its own, whose collectives are of no use afterwards.
  done = forked.run('tests.step.fail_inside')
  assert done.stdout == 'began\nfailed\n', done.stderr
