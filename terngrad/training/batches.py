"""The batches of a process: what its workers get to see, step by step."""

import abc
import contextlib
import functools
import itertools
from collections.abc import Iterator
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from slim.datasets import factory as datasets
from slim.datasets.records import records
from slim.nets import factory as nets
from terngrad import errors
from terngrad.config import model as model_options
from terngrad.training import shares as shares_lib

# Images [workers of this process, share, ...] and labels [the same, share], as
# `shares.deal` makes them.
Batch = tuple[tf.Tensor | tf.RaggedTensor, tf.Tensor | tf.RaggedTensor]


class Data(abc.ABC):
  """The examples of a run.

  Attributes:
    num_examples: examples in an epoch.
    num_classes: of the labels.
    channels: of the images.
    digest: of what is read, see `read_options.SplitInfo`.
  """

  def __init__(
    self,
    num_examples: int,
    num_classes: int,
    channels: int,
    digest: str | None = None,
  ) -> None:
    """Takes what all data have; see the class."""
    self.num_examples = num_examples
    self.num_classes = num_classes
    self.channels = channels
    self.digest = digest

  @abc.abstractmethod
  def batches(
    self, step: int, shares: Sequence[int] | None = None
  ) -> Iterator[Batch]:
    """The batches from a step on.

    Args:
      step: steps taken before.
      shares: of all workers, where devices have weights; None for equal ones.
    """


def open_data(
  data: model_options.Data,
  model: model_options.Model,
  num_workers: int,
  benchmark: bool,
  workers: range | None = None,
  part: tuple[int, int] = (0, 1),
) -> Data:
  """Finds the data of a run; missing files show before anything is written.

  Args:
    data: what is read, and how.
    model: its net and its seed count.
    num_workers: that share a batch, each with an example at least.
    benchmark: True for constant images, without any data.
    workers: those whose rows of each batch to read; None for all.
    part: (place, number of parts), which part of the examples to read.

  Raises:
    slim.errors.DataError: it is not there.
  """
  own = _Rows(data.batch_size, num_workers, workers or range(num_workers))
  if benchmark:
    return _ConstantData(data, model, own)
  return _StoredData(data, model, own, part)


class _Rows(NamedTuple):
  """Which rows of a batch some workers have.

  Attributes:
    batch_size: examples, of all workers.
    num_workers: that share a batch.
    workers: those whose rows they are.
  """

  batch_size: int
  num_workers: int
  workers: range

  @property
  def are_all(self) -> bool:
    """Whether they are the whole batch."""
    return len(self.workers) == self.num_workers

  def of(self, shares: Sequence[int] | None) -> tuple[int, Sequence[int]]:
    """(the first row, the shares of the workers), by the shares of all."""
    workers = self.workers
    shares = shares or shares_lib.divide(
      self.batch_size, [1] * self.num_workers
    )
    return sum(shares[: workers.start]), shares[workers.start : workers.stop]


class _StoredData(Data):
  """Examples in files."""

  def __init__(
    self,
    data: model_options.Data,
    model: model_options.Model,
    rows: _Rows,
    part: tuple[int, int],
  ) -> None:
    """Finds the files; see `open_data`."""
    self._data, self._model, self._rows, self._part = data, model, rows, part
    _, split = self._load(0, None)
    super().__init__(
      split.num_examples, split.num_classes, split.channels, split.digest
    )

  def batches(
    self, step: int, shares: Sequence[int] | None = None
  ) -> Iterator[Batch]:
    """See `Data.batches`."""
    return iter(self._load(step, shares)[0])

  def _load(
    self, step: int, shares: Sequence[int] | None
  ) -> tuple[tf.data.Dataset, datasets.SplitInfo]:
    data, model, part = self._data, self._model, self._part
    begin, own = self._rows.of(shares)
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
        rows=None if self._rows.are_all else (begin, begin + sum(own)),
      ),
      data.num_classes or None,
    )
    return stream.map(functools.partial(shares_lib.deal, own)), split


class _ConstantData(Data):
  """Images of 0.5 and random labels, the same batch for ever."""

  def __init__(
    self, data: model_options.Data, model: model_options.Model, rows: _Rows
  ) -> None:
    """Reads nothing; see `open_data`."""
    dataset = datasets.DATASETS.get(data.dataset_name)
    net = nets.of(model.net)
    classes = data.num_classes or (dataset and dataset.num_classes) or 1000
    channels = dataset.channels if dataset else net.default_channels
    super().__init__(1281167, classes, channels)
    self._size, self._seed, self._rows = data.image_size, model.seed, rows

  def batches(
    self, step: int, shares: Sequence[int] | None = None
  ) -> Iterator[Batch]:
    """See `Data.batches`."""
    del step
    begin, own = self._rows.of(shares)
    images = tf.fill([sum(own), self._size, self._size, self.channels], 0.5)
    labels = tf.random.stateless_uniform(
      [self._rows.batch_size],
      [self._seed % 2**31, 0],
      0,
      self.num_classes,
      tf.int32,
    )
    batch = shares_lib.deal(own, images, labels[begin : begin + sum(own)])
    return itertools.repeat(batch)


@contextlib.contextmanager
def explaining(data_dir: str, subset: str) -> Iterator[None]:
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
