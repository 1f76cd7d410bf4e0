"""What a worker process reads of the data, and its shapes."""

from slim.datasets import shards
from terngrad.training import batches


def open_part(config):
  """The examples of this worker process; see `batches.open_data`.

  Workers of one folder read disjoint parts of it; a folder that
  `split_dataset.sh` made is a part already and is read whole.

  Args:
    config: `server_config.ServerConfig` of this process.

  Returns:
    A `batches.Data`.
  """
  part = config.tasks.index, len(config.tasks.jobs['worker'])
  if shards.is_workers(config.data_dir):
    part = 0, 1
  return batches.open_data(config, part=part)


def shapes_of(config, channels):
  """Of a process's batch: images [nodes, b, s, s, c], labels [nodes, b]."""
  size = config.image_size
  share = [config.num_workers, config.batch_size // config.num_workers]
  return [*share, size, size, channels], share
