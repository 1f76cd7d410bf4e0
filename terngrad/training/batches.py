"""The batches of a process: what its workers get to see, step by step."""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from slim.datasets import factory as datasets
from slim.nets import factory as nets


class Data(NamedTuple):
  """The examples of a run.

  Attributes:
    batches: takes a step, returns an iterator of (images [workers of this
      process, b, ...], labels [the same, b]) from that step on.
    num_examples: examples in an epoch.
    num_classes: of the labels.
    channels: of the images.
  """

  batches: Callable
  num_examples: int
  num_classes: int
  channels: int


class Options(NamedTuple):
  """The options of `training.TrainConfig` that say what is read, and how."""

  dataset_name: str
  data_dir: str
  subset: str
  benchmark_mode: bool
  batch_size: int
  num_workers: int
  image_size: int
  net: str
  preprocessing: str
  labels_offset: int
  input_queue_memory_factor: int
  seed: int


def open_data(options, workers=None, part=(0, 1)):
  """Finds the data of a run; missing files show before anything is written.

  Args:
    options: `Options`.
    workers: range of those whose rows of each batch to read; None for all.
    part: (place, number of parts), which part of the examples to read.

  Returns:
    A `Data`.

  Raises:
    slim.errors.DataError: it is not there.
  """
  workers = workers or range(options.num_workers)
  if options.benchmark_mode:
    return _constant(options, workers)
  share = options.batch_size // options.num_workers
  rows = (share * workers.start, share * workers.stop)

  def load(step):
    stream, split = datasets.load(
      options.dataset_name,
      options.data_dir,
      options.subset,
      datasets.ReadOptions(
        image_size=options.image_size,
        batch_size=options.batch_size,
        training=True,
        seed=options.seed,
        start=step * options.batch_size,
        shuffle_buffer=1024 * options.input_queue_memory_factor,
        net=options.net,
        preprocessing=options.preprocessing,
        labels_offset=options.labels_offset,
        worker=part[0],
        num_workers=part[1],
        rows=None if len(workers) == options.num_workers else rows,
      ),
    )
    return stream.map(lambda *batch: _split(len(workers), share, *batch)), split

  _, split = load(0)
  return Data(
    lambda step: iter(load(step)[0]),
    split.num_examples,
    split.num_classes,
    split.channels,
  )


def _constant(options, workers):
  """Images of 0.5 and random labels, the same batch for ever."""
  dataset = datasets.DATASETS.get(options.dataset_name)
  net = nets.NETS[options.net]
  classes = (dataset and dataset.num_classes) or 1000
  channels = dataset.channels if dataset else net.default_channels
  size = options.image_size

  def batches(step):
    del step
    images, labels = _split(
      options.num_workers,
      options.batch_size // options.num_workers,
      tf.fill([options.batch_size, size, size, channels], 0.5),
      tf.random.stateless_uniform(
        [options.batch_size], [options.seed % 2**31, 0], 0, classes, tf.int32
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
