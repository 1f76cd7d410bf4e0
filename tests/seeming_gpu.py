"""A machine that seems to have a GPU, for rules that ask for one."""

import tensorflow as tf


def pretend(monkeypatch):
  """Lets TensorFlow list a physical GPU until the test ends."""
  cpus = tf.config.list_physical_devices('CPU')
  gpus = [tf.config.PhysicalDevice('/physical_device:GPU:0', 'GPU')]
  known = {'CPU': cpus, 'GPU': gpus, None: cpus + gpus}
  monkeypatch.setattr(
    tf.config, 'list_physical_devices', lambda kind=None: known[kind]
  )
