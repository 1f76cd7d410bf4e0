"""Measures the data set converters."""

import dataclasses
import os
import pathlib
from collections.abc import Callable

from terngrad import lazy
from terngrad.cli import command
from terngrad.cli import flags
from terngrad.cli.convert import writing
from terngrad.config import options

data = lazy.module('terngrad.measure.data')

USAGE = """\
{program}: measures the converters, as ratios in one run.

  {program} --image_dir=PHOTOS --mnist_dir=IDX

PHOTOS has a folder of JPEGs for each class; IDX the four files of MNIST. It
prints ratios of times, which have limits set by the project:

  images   `terngrad convert images`, to reading and copying the same bytes with
           one decode per image, by as many threads                  (at most 2)
  mnist    the conversion, to encoding the same images in one call and writing
           the same records with a bare TFRecordWriter             (at most 1.5)
  mnist, ready records   the same, to writing records that exist already; no
           limit: it is mostly the time of compressing the images
"""

option = options.option


@dataclasses.dataclass(frozen=True)
class MeasureDataFlags:
  """The flags of `terngrad measure data`."""

  image_dir: str = option('', 'Folders of JPEGs.')
  mnist_dir: str = option('', 'Folder of the idx files of MNIST.')
  num_threads: int = option(0, 'Threads; 0: one per core.')
  rounds: int = option(5, 'Number of rounds for the median.')


def act(values: MeasureDataFlags) -> None:
  """Measures the selected converters and prints the results.

  Raises:
    slim.errors.DataError: the data cannot be used.
    terngrad.cli.flags.UsageError: there is nothing to measure.
  """
  if not (values.image_dir or values.mnist_dir) or values.rounds < 1:
    raise flags.UsageError(
      'Expected --image_dir or --mnist_dir, and --rounds of at least 1; '
      f'received --rounds={values.rounds} and nothing to measure. See --help.'
    )
  threads = values.num_threads or os.cpu_count() or 1
  pairs: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {}
  if values.image_dir:
    pairs |= data.image_pairs(pathlib.Path(values.image_dir), threads)
  if values.mnist_dir:
    pairs |= data.mnist_pairs(values.mnist_dir, threads)
  for name, pair in pairs.items():
    found = data.compare(*pair, values.rounds)
    measured, reference = found.seconds
    command.say(
      f'{name}: {found.ratio:.2f} (medians {measured:.3f} s to {reference:.3f} '
      f's, {values.rounds} rounds, {threads} threads)'
    )


COMMAND = writing.converter(USAGE, MeasureDataFlags, act)
