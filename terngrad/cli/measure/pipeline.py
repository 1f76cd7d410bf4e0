"""Measures the training pipeline for photographs relative to plain decoding."""

import dataclasses
import os
import statistics

from terngrad import lazy
from terngrad.cli import command
from terngrad.cli.convert import writing
from terngrad.config import options

pipeline = lazy.module('terngrad.measure.pipeline')

USAGE = """\
{program}: compares the training pipeline for photographs with bare decoding.

  {program} --source_dir=PHOTOS

Bare decoding decodes whole images in memory, crops, resizes and batches them.
The pipeline reads records, a database or a folder, shuffles, crops, decodes,
distorts and batches, as training does. Both take turns, with the same number of
threads.
"""

option = options.option


@dataclasses.dataclass(frozen=True)
class MeasurePipelineFlags:
  """The flags of `terngrad measure pipeline`."""

  source_dir: str = option(
    '',
    'Folder whose JPEG files, subfolders included, are resized to the most '
    'frequent size of ImageNet; empty: generated images.',
  )
  images: int = option(256, 'Number of photographs.')
  nets: tuple[str, ...] = option(
    ('alexnet', 'googlenet', 'vgg_16'), 'Nets whose preprocessing is measured.'
  )
  storages: tuple[str, ...] = option(
    ('records',),
    'Where photographs are read from: records, database, folder.',
  )
  image_size: int = option(224, 'Height and width of the output.')
  batch_size: int = option(32, 'Images per batch.')
  batches: int = option(40, 'Batches of each per round.')
  rounds: int = option(5, 'Number of rounds for the median.')
  threads: int = option(0, 'Images decoded at the same time; 0: one per core.')


def act(values: MeasurePipelineFlags) -> None:
  """Prints images per second of both, and the pipeline's ratio to decoding.

  Raises:
    slim.errors.DataError: the data cannot be used.
    terngrad.errors.ConfigError: a number is too small.
  """
  command.at_least(pipeline.SHARDS, values, 'images')
  command.at_least(0, values, 'threads')
  command.at_least(1, values, 'image_size', 'batch_size', 'batches', 'rounds')
  load = pipeline.Load(
    values.image_size,
    values.batch_size,
    values.batches,
    values.threads or os.cpu_count() or 1,
  )
  jpegs = pipeline.photographs(values.source_dir, values.images)
  found = pipeline.compare(
    jpegs, values.nets, values.storages, load, values.rounds
  )
  size = statistics.mean(map(len, jpegs)) / 1000
  command.say(
    f'{pipeline.WIDTH}x{pipeline.HEIGHT} JPEGs of {size:.0f} kB to '
    f'{load.image_size} pixels, {load.threads} threads, batches of '
    f'{load.batch_size}'
  )
  command.say(f'bare: {statistics.median(found.plain_decoding):.0f} images/s')
  for (net, storage), pairs in found.pipelines.items():
    speeds, ratios = zip(*pairs, strict=True)
    command.say(
      f'{net}, {storage}: {statistics.median(speeds):.0f} images/s, ratio to '
      f'bare {statistics.median(ratios):.2f} ({min(ratios):.2f} to '
      f'{max(ratios):.2f})'
    )


COMMAND = writing.converter(USAGE, MeasurePipelineFlags, act)
