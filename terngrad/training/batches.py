"""The batches of a process: what its workers get to see, step by step."""

import contextlib
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from slim.datasets import factory as datasets
from slim.datasets.records import records
from slim.nets import factory as nets
from terngrad import errors


class Data(NamedTuple):
  """The examples of a run.

  Attributes:
    batches: takes a step, returns an iterator of (images [workers of this
      process, b, ...], labels [the same, b]) from that step on.
    num_examples: examples in an epoch.
    num_classes: of the labels.
    channels: of the images.
    digest: of what is read, see `read_options.SplitInfo`.
  """

  batches: Callable
  num_examples: int
  num_classes: int
  channels: int
  digest: str | None = None


def open_data(data, model, num_workers, benchmark, workers=None, part=(0, 1)):
  """Finds the data of a run; missing files show before anything is written.

  Args:
    data: `config.model.Data`, which says what is read, and how.
    model: `config.model.Model`; its net and its seed count.
    num_workers: that share a batch.
    benchmark: True for constant images, without any data.
    workers: range of those whose rows of each batch to read; None for all.
    part: (place, number of parts), which part of the examples to read.

  Returns:
    A `Data`.

  Raises:
    slim.errors.DataError: it is not there.
  """
  workers = workers or range(num_workers)
  if benchmark:
    return _constant(data, model, num_workers, workers)
  share = data.batch_size // num_workers
  rows = (share * workers.start, share * workers.stop)

  def load(step):
    stream, split = datasets.load(
      data.dataset_name,
      data.data_dir,
      data.subset,
      datasets.ReadOptions(
        image_size=data.image_size,
        batch_size=data.batch_size,
        training=True,
        seed=model.seed,
        start=step * data.batch_size,
        shuffle_buffer=1024 * data.input_queue_memory_factor,
        net=model.net,
        preprocessing=data.preprocessing,
        labels_offset=data.labels_offset,
        worker=part[0],
        num_workers=part[1],
        rows=None if len(workers) == num_workers else rows,
      ),
      data.num_classes or None,
    )
    return stream.map(lambda *batch: _split(len(workers), share, *batch)), split

  _, split = load(0)
  return Data(
    lambda step: iter(load(step)[0]),
    split.num_examples,
    split.num_classes,
    split.channels,
    split.digest,
  )


@contextlib.contextmanager
def explaining(data_dir, subset):
  """Says which file of a subset is damaged where reading it fails.

  Raises:
    errors.TrainingError: it does; not a DataError, which says that nothing was
      written.
  """
  try:
    yield
  except tf.errors.OpError as error:
    paths = records.find(data_dir, subset)
    raise errors.TrainingError(str(records.explain(error, paths))) from error


def _constant(data, model, num_workers, workers):
  """Images of 0.5 and random labels, the same batch for ever."""
  dataset = datasets.DATASETS.get(data.dataset_name)
  net = nets.NETS[model.net]
  classes = data.num_classes or (dataset and dataset.num_classes) or 1000
  channels = dataset.channels if dataset else net.default_channels
  count, size = data.batch_size, data.image_size

  def batches(step):
    del step
    images, labels = _split(
      num_workers,
      count // num_workers,
      tf.fill([count, size, size, channels], 0.5),
      tf.random.stateless_uniform(
        [count], [model.seed % 2**31, 0], 0, classes, tf.int32
      ),
    )
    own = slice(workers.start, workers.stop)
    batch = images[own], labels[own]
    return iter(lambda: batch, None)

  return Data(batches, 1281167, classes, channels)


def _split(workers, share, images, labels):
  """Deals examples to workers in equal, consecutive parts."""
  return (
    tf.reshape(images, [workers, share, *images.shape[1:]]),
    tf.reshape(labels, [workers, share]),
  )
