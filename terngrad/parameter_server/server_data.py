"""What a worker process reads of the data, and its shapes."""

from slim.datasets import shards
from terngrad.training import batches


def open_part(options, cluster):
  """The examples of this worker process; see `batches.open_data`.

  Workers of one folder read disjoint parts of it; a folder that
  `split_dataset.sh` made is a part already and is read whole.

  Args:
    options: `batches.Options` of this process.
    cluster: `cluster.Cluster`.

  Returns:
    A `batches.Data`.
  """
  part = cluster.index, len(cluster.jobs['worker'])
  if shards.is_workers(options.data_dir):
    part = 0, 1
  return batches.open_data(options, part=part)


def shapes_of(options, channels):
  """Of a process's batch: images [nodes, b, s, s, c], labels [nodes, b]."""
  size = options.image_size
  share = [options.num_workers, options.batch_size // options.num_workers]
  return [*share, size, size, channels], share
