"""The batches of a process: what its workers get to see, step by step."""

import contextlib
import functools
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from slim.datasets import factory as datasets
from slim.datasets.records import records
from slim.nets import factory as nets
from terngrad import errors
from terngrad.training import shares as shares_lib


class Data(NamedTuple):
  """The examples of a run.

  Attributes:
    batches: takes a step and, where devices have weights, the shares of all
      workers, a sequence of int, left out for equal ones; returns an iterator
      of (images [workers of this process, share, ...], labels [the same,
      share]) from that step on, as `shares.deal` makes them.
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
    num_workers: that share a batch, each with an example at least.
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
  equal = shares_lib.divide(data.batch_size, [1] * num_workers)

  def load(step, shares=None):
    begin, own = _own(shares or equal, workers)
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
        rows=None if len(workers) == num_workers else (begin, begin + sum(own)),
      ),
      data.num_classes or None,
    )
    return stream.map(functools.partial(shares_lib.deal, own)), split

  _, split = load(0)
  return Data(
    lambda step, shares=None: iter(load(step, shares)[0]),
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
  except records.FAILURES as error:
    paths = records.find(data_dir, subset)
    raise errors.TrainingError(str(records.explain(error, paths))) from error


def _constant(data, model, num_workers, workers):
  """Images of 0.5 and random labels, the same batch for ever."""
  dataset = datasets.DATASETS.get(data.dataset_name)
  net = nets.of(model.net)
  classes = data.num_classes or (dataset and dataset.num_classes) or 1000
  channels = dataset.channels if dataset else net.default_channels
  count, size = data.batch_size, data.image_size

  def batches(step, shares=None):
    del step
    shares = shares or shares_lib.divide(count, [1] * num_workers)
    begin, own = _own(shares, workers)
    images = tf.fill([sum(own), size, size, channels], 0.5)
    labels = tf.random.stateless_uniform(
      [count], [model.seed % 2**31, 0], 0, classes, tf.int32
    )
    batch = shares_lib.deal(own, images, labels[begin : begin + sum(own)])
    return iter(lambda: batch, None)

  return Data(batches, 1281167, classes, channels)


def _own(shares, workers):
  """(the first row of a range of workers, their shares)."""
  return sum(shares[: workers.start]), shares[workers.start : workers.stop]
