"""Batches of the sequences of a data set of text."""

import os

import tensorflow as tf

from slim import errors
from slim.datasets import catalog
from slim.datasets import examples
from slim.datasets import read_options
from slim.datasets import shards
from slim.datasets import streams
from slim.datasets.text import convert_text


def load(
  found: shards.Shards,
  data_dir: str | os.PathLike[str],
  options: read_options.ReadOptions,
) -> tuple[tf.data.Dataset, read_options.SplitInfo]:
  """Opens a split of text.

  Args:
    found: its shards.
    data_dir: their folder, for messages.
    options: read options; those of images have no effect.

  Returns:
    Elements (tokens int32 [B, T], next tokens int32 [B, T]), and the
    description of the split.

  Raises:
    slim.errors.DataError: the folder holds no text, or another corpus than
      `options.corpus`.
  """
  text, dataset = found.text, catalog.DATASETS[convert_text.NAME]
  if text is None:
    raise errors.refusal(
      os.fspath(data_dir),
      'text',
      'a shards.json that describes none',
      'Fill another folder with: terngrad convert text',
    )
  if options.corpus not in ('', text.digest):
    raise errors.refusal(
      'corpus',
      f'{options.corpus}',
      f'{text.digest}, the digest of the text in {os.fspath(data_dir)}',
      'Results on different texts cannot be compared: convert the same text '
      f'(another version of Python has another standard library), or pass '
      f'--corpus={text.digest} for a new experiment.',
    )
  stream = streams.open_shards(found, dataset, options, as_strings=True)
  stream, options = streams.select_rows(stream, options)
  length, classes = text.sequence_length, stream.split.num_classes
  keys = {convert_text.TOKENS: tf.io.FixedLenFeature([], tf.string)}

  def decode(
    positions: tf.Tensor, serialized: tf.Tensor
  ) -> tuple[tf.Tensor, tf.Tensor]:
    del positions
    parsed = tf.io.parse_example(serialized, keys)[convert_text.TOKENS]
    tokens = tf.io.decode_raw(parsed, tf.uint16)
    tokens = tf.ensure_shape(tokens, [None, length + 1])
    tokens = examples.check_labels(tf.cast(tokens, tf.int64), classes)
    return tokens[:, :-1], tokens[:, 1:]

  batches = stream.elements.batch(options.batch_size).map(
    decode, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
  )
  return batches.prefetch(tf.data.AUTOTUNE), stream.split
