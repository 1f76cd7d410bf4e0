"""What parts of a run take from its configuration."""

import pytest

from terngrad.checkpoint import pretrained
from terngrad.cluster import together
from terngrad.config import config as configs
from terngrad.config import server_config
from terngrad.parameter_server import async_run
from terngrad.step import schedules
from terngrad.training import batches
from terngrad.training import options


def test_options_and_properties_are_taken_by_name():
  config = configs.TrainConfig(
    optimizer='adam:epsilon=1.0', initial_learning_rate=0.5, max_steps=7
  )
  taken = options.pick(schedules.Options, config)
  # The learning rate of Adam is fixed, whatever its own options.
  assert taken.optimizer_name == 'adam'
  assert (taken.initial_learning_rate, taken.max_steps) == (0.5, 7)
  assert options.pick(together.Options, config).tasks is None


@pytest.mark.parametrize(
  'kind',
  [
    *(batches.Options, schedules.Options, together.Options),
    *(pretrained.Options, async_run.Options),
  ],
  ids=lambda kind: kind.__module__,
)
def test_a_task_of_a_cluster_has_all_that_parts_take(kind):
  config = server_config.ServerConfig(
    job_name='worker', ps_hosts='localhost:1', worker_hosts='localhost:2'
  )
  taken = options.pick(kind, config)
  assert all(value is not None for value in taken)
