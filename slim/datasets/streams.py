"""Ordered streams of the examples of a split, before they are read."""

import dataclasses
from collections.abc import Callable
from typing import Any
from typing import NamedTuple

import tensorflow as tf

from slim.datasets import catalog
from slim.datasets import examples
from slim.datasets import read_options
from slim.datasets import shards
from slim.datasets import sources
from slim.datasets.records import order


class Stream(NamedTuple):
  """The examples of one worker, in the order in which it receives them.

  Attributes:
    split: sizes, labels and digest of the split.
    elements: pairs (position int64 [], element). An element identifies an
      example: a serialized string, a `Reference` or an index.
    read: returns the example of an element.
  """

  split: read_options.SplitInfo
  elements: tf.data.Dataset
  read: Callable[[Any], examples.Stored]


def open_shards(
  found: shards.Shards,
  dataset: catalog.Dataset,
  options: read_options.ReadOptions,
  *,
  as_strings: bool,
) -> Stream:
  """Streams the records of the shards.

  Args:
    found: the shards.
    dataset: the data set that the shards belong to.
    options: which records to stream, and in which order.
    as_strings: True streams serialized examples, string [], which is faster
      for small examples. False may stream references, which saves copies.
  """
  files = order.partition_files(
    found.files, options.worker, options.num_workers
  )
  count = sum(file.count for file in files)
  wanted = min(options.limit or count, count)
  split = read_options.SplitInfo(
    num_examples=found.num_examples,
    count=wanted,
    num_classes=found.num_classes,
    channels=dataset.channels,
    labels=found.labels,
    digest=found.digest,
    text=found.text,
  )
  if not options.training:
    elements = order.read_sequentially(files).take(wanted)
    return Stream(split, elements, examples.parse)
  shuffled = order.shuffled if as_strings else order.shuffled_references
  elements = shuffled(
    files,
    seed=options.seed,
    start=options.start,
    # A window larger than the split would make the order depend on its size.
    window=min(options.shuffle_buffer, count),
  )
  read = examples.parse if as_strings else _parse_reference
  return Stream(split, elements, read)


def _parse_reference(reference: order.Reference) -> examples.Stored:
  return examples.parse(reference.serialized())


def open_source(
  source: sources.ExampleSource,
  dataset: catalog.Dataset,
  options: read_options.ReadOptions,
) -> Stream:
  """Streams the indices of the examples of a source, int64 []."""
  part = order.partition_indices(
    source.count, options.worker, options.num_workers
  )
  wanted = min(options.limit or len(part), len(part))
  split = read_options.SplitInfo(
    num_examples=source.count,
    count=wanted,
    num_classes=source.num_classes,
    channels=dataset.channels,
    labels=source.labels,
    digest=source.digest,
  )
  if options.training:
    elements = order.shuffled_indices(
      len(part), seed=options.seed, start=options.start
    )
  else:
    elements = (
      tf.data.Dataset.range(wanted)
      .map(lambda number: number * len(part) // wanted)
      .enumerate()
    )
  elements = elements.map(
    lambda position, index: (position, part.start + part.step * index)
  )
  return Stream(split, elements, source.read)


def select_rows(
  stream: Stream, options: read_options.ReadOptions
) -> tuple[Stream, read_options.ReadOptions]:
  """Keeps only the rows `options.rows` of each batch.

  Args:
    stream: the examples.
    options: read options. If `rows` is None, nothing is removed.

  Returns:
    The remaining stream, and the read options with the batch size of these
    rows.
  """
  if options.rows is None:
    return stream, options
  begin, end = options.rows

  def wanted(position: tf.Tensor, _: Any) -> tf.Tensor:
    row = (position - options.start) % options.batch_size
    return (row >= begin) & (row < end)

  return (
    stream._replace(elements=stream.elements.filter(wanted)),
    dataclasses.replace(options, batch_size=end - begin, rows=None),
  )
