"""Four logical CPU devices for every test, and one warm process of programs."""

import pytest
import tensorflow as tf

from tests.bin import programs

DEVICES = 4

tf.config.set_logical_device_configuration(
  tf.config.list_physical_devices('CPU')[0],
  [tf.config.LogicalDeviceConfiguration()] * DEVICES,
)


@pytest.fixture(scope='session')
def worker(tmp_path_factory):
  """A process that runs programs one after the other; see programs.Worker."""
  with programs.Worker(tmp_path_factory.mktemp('worker')) as process:
    yield process
