"""Opens the data of a run and reads the batches of a process's workers."""

import contextlib
import functools
import itertools
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import NamedTuple
from typing import TypeAlias

import tensorflow as tf

from slim.datasets import factory as datasets
from slim.datasets.records import records
from slim.nets import factory as nets
from terngrad import errors
from terngrad.config import model as model_options
from terngrad.training import shares as shares_lib

# Ragged if the workers have unequal shares; see `shares.split_batch`.
Examples: TypeAlias = tf.Tensor | tf.RaggedTensor
# Images [workers of this process, share, ...] and labels [the same, share].
Batch = tuple[Examples, Examples]


class Data(NamedTuple):
  """The examples of a run.

  Attributes:
    num_examples: examples in an epoch.
    num_classes: number of classes, the size of the logits.
    channels: channels of the images.
    batches: yields the batches from a step on. Arguments: the number of
      completed steps, and the examples of each worker of all processes; None
      for equal shares.
    digest: equal for equal data; None if unknown.
    tokenizer: equal for equal vocabularies of text; '' if unknown.
  """

  num_examples: int
  num_classes: int
  channels: int
  batches: Callable[..., Iterator[Batch]]
  digest: str | None = None
  tokenizer: str = ''


def open_data(
  data: model_options.DataOptions,
  model: model_options.ModelOptions,
  num_workers: int,
  benchmark: bool,
  workers: range | None = None,
  part: tuple[int, int] = (0, 1),
) -> Data:
  """Opens the data of a run.

  Missing files raise here, before the run writes anything.

  Args:
    data: options of the data set and of the batches.
    model: options; the seed sets the order, the network the preprocessing.
    num_workers: workers that share a batch, each with at least one example.
    benchmark: True for constant images and no files.
    workers: workers whose rows of each batch are read; None for all.
    part: (index, number of parts) of the examples to read.

  Raises:
    slim.errors.DataError: the data is missing or unreadable.
  """
  rows_of = functools.partial(
    _rows, data.batch_size, num_workers, workers or range(num_workers)
  )
  if benchmark:
    return _constant(data, model, rows_of)
  load = functools.partial(_load, data, model, part, rows_of)
  start, split = load(0)

  def batches(
    step: int, shares: Sequence[int] | None = None
  ) -> Iterator[Batch]:
    # Opening a stream takes most of a second: TensorFlow traces its functions.
    return iter(load(step, shares)[0] if step or shares else start)

  return Data(
    split.num_examples,
    split.num_classes,
    split.channels,
    batches,
    split.digest,
    split.text.tokenizer_digest if split.text else '',
  )


# `_rows` as a function of the shares of all workers.
_Rows = Callable[[Sequence[int] | None], tuple[tuple[int, int], Sequence[int]]]


def _rows(
  batch_size: int,
  num_workers: int,
  workers: range,
  shares: Sequence[int] | None,
) -> tuple[tuple[int, int], Sequence[int]]:
  """Computes the range of batch rows that some workers have.

  Args:
    batch_size: examples of all workers.
    num_workers: workers that share a batch.
    workers: consecutive workers.
    shares: examples of each worker; None for equal shares.

  Returns:
    ((begin, end) of the rows of `workers`, the shares of `workers`).
  """
  shares = shares or shares_lib.divide(batch_size, [1] * num_workers)
  begin = sum(shares[: workers.start])
  local = shares[workers.start : workers.stop]
  return (begin, begin + sum(local)), local


def _load(
  data: model_options.DataOptions,
  model: model_options.ModelOptions,
  part: tuple[int, int],
  rows_of: _Rows,
  step: int,
  shares: Sequence[int] | None = None,
) -> tuple[tf.data.Dataset, datasets.SplitInfo]:
  """Opens the files: (stream of batches from a step on, facts on the data)."""
  rows, local = rows_of(shares)
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
      corpus=data.corpus,
      worker=part[0],
      num_workers=part[1],
      rows=None if rows == (0, data.batch_size) else rows,
    ),
    data.num_classes or None,
  )
  divide = functools.partial(shares_lib.split_batch, local)
  return stream.map(tf.autograph.experimental.do_not_convert(divide)), split


def expected_sizes(
  data: model_options.DataOptions, net: str
) -> tuple[int, int]:
  """Returns the numbers of classes and of channels, without reading files.

  A data set that does not say has 1,000 classes, and the channels of the net.
  """
  dataset = datasets.DATASETS.get(data.dataset_name)
  classes = data.num_classes or (dataset and dataset.num_classes) or 1000
  return classes, (
    dataset.channels if dataset else nets.find_net(net).default_channels
  )


def _constant(
  data: model_options.DataOptions,
  model: model_options.ModelOptions,
  rows_of: _Rows,
) -> Data:
  """Makes images of 0.5 and random labels, the same batch in every step.

  Nets that take tokens get random ones.
  """
  net = nets.find_net(model.net)
  classes, channels = expected_sizes(data, model.net)

  def batches(
    step: int, shares: Sequence[int] | None = None
  ) -> Iterator[Batch]:
    del step
    (begin, end), local = rows_of(shares)
    size, batch_size = data.image_size, data.batch_size
    shape = [batch_size, size + 1] if net.takes_tokens else [batch_size]
    labels = tf.random.stateless_uniform(
      shape, [model.seed % 2**31, 0], 0, classes, tf.int32
    )[begin:end]
    images = tf.fill([end - begin, size, size, channels], 0.5)
    if net.takes_tokens:
      images, labels = labels[:, :-1], labels[:, 1:]
    return itertools.repeat(shares_lib.split_batch(local, images, labels))

  return Data(1281167, classes, channels, batches)


@contextlib.contextmanager
def explain_read_errors(
  data_dir: str,
  subset: str,
  kind: type[Exception] = errors.TrainingError,
) -> Iterator[None]:
  """Context that explains failed reads by naming the damaged file.

  Args:
    data_dir: folder of the files.
    subset: prefix of the files.
    kind: class of the error to raise; `slim.errors.DataError` if the run has
      written nothing yet.

  Raises:
    kind: the block failed to read the data.
  """
  try:
    yield
  except records.FAILURES as error:
    paths = records.find(data_dir, subset)
    raise kind(str(records.explain(error, paths))) from error
