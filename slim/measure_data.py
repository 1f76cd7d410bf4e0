r"""Measures the converters, as ratios in one run.

Both sides of a ratio take turns, round by round, and the ratio is the median
over the rounds of the ratios within a round, so that a machine whose speed
wanders moves both sides.
"""

import concurrent.futures
import dataclasses
import os
import pathlib
import statistics
import sys
import tempfile
import time
from collections import abc

if __package__ in (None, ''):
  # Started by its path: Python then searches this folder, where a package
  # `datasets` would hide others of that name, and not the one above it.
  sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])

from slim import command_line
from slim.datasets.photographs import image_folders
from slim.datasets.photographs import labeled_images
from slim.datasets.records import features
from slim.datasets.records import sharding
from slim.datasets.small_images import convert_arrays
from slim.datasets.small_images import convert_mnist
from slim.datasets.small_images import mnist_source
from terngrad.program import flags

# After command_line, which sets what TensorFlow logs.
import tensorflow as tf  # isort: skip

USAGE = """\
measure_data: measures the converters, as ratios in one run.

  measure_data --image_dir=PHOTOS --mnist_dir=IDX

PHOTOS has a folder of JPEGs for each class; IDX the four files of MNIST. It
prints, with limits that the project sets itself:

  images   build_image_data, to reading and copying the same bytes with one
           decode per image, by as many threads                      (at most 2)
  mnist    the conversion, to encoding the same images in one call and writing
           the same records with a bare TFRecordWriter             (at most 1.5)
  mnist, ready records   the same, to writing records that are there already;
           no limit: it is mostly the time of compressing the images
"""

_Timed = abc.Callable[[pathlib.Path], None]


@dataclasses.dataclass(frozen=True)
class Config:
  """The flags."""

  image_dir: str = command_line.option('', 'Folders of JPEGs.')
  mnist_dir: str = command_line.option('', 'Folder of the idx files of MNIST.')
  num_threads: int = command_line.option(0, 'Threads; 0: one a core.')
  rounds: int = command_line.option(5, 'Rounds to take the median of.')


def main(config: Config) -> None:
  """Measures what the flags ask for, and prints it.

  Args:
    config: the flags.

  Raises:
    slim.errors.DataError: the data cannot be used.
    terngrad.program.flags.UsageError: there is nothing to measure.
  """
  threads = config.num_threads or os.cpu_count() or 1
  pairs = {}
  if config.image_dir:
    pairs |= _image_pairs(pathlib.Path(config.image_dir), threads)
  if config.mnist_dir:
    pairs |= _mnist_pairs(config.mnist_dir, threads)
  if not pairs or config.rounds < 1:
    raise flags.UsageError(
      'Expected --image_dir or --mnist_dir, and --rounds of at least 1; '
      'received nothing to measure. See --help.'
    )
  for name, (measured, reference) in pairs.items():
    times = [
      (_seconds(measured), _seconds(reference)) for _ in range(config.rounds)
    ]
    ratio = statistics.median(a / b for a, b in times)
    seconds = [statistics.median(side) for side in zip(*times, strict=True)]
    command_line.say(
      f'{name}: {ratio:.2f} (medians {seconds[0]:.3f} s to {seconds[1]:.3f} s, '
      f'{config.rounds} rounds, {threads} threads)'
    )


def _seconds(act: _Timed) -> float:
  with tempfile.TemporaryDirectory(prefix='measure-data-') as folder:
    start = time.perf_counter()
    act(pathlib.Path(folder))
    return time.perf_counter() - start


def _image_pairs(
  source: pathlib.Path, threads: int
) -> dict[str, tuple[_Timed, _Timed]]:
  names = image_folders.class_folders(source)
  items = image_folders.find(source, names, 1)

  def build(folder):
    plan = labeled_images.plan(
      'images',
      [image_folders.BACKGROUND, *names],
      {'train': labeled_images.shuffled(items)},
      {'train': sharding.file_names('train', 2)},
      str(source),
    )
    sharding.write(folder, plan, sharding.Options(threads))

  def read_and_decode(item):
    content = pathlib.Path(item.file.path).read_bytes()
    tf.io.decode_jpeg(content, channels=3)
    return content

  def copy(folder):
    with (
      concurrent.futures.ThreadPoolExecutor(threads) as pool,
      open(folder / 'copy', 'wb') as file,
    ):
      for content in pool.map(read_and_decode, items):
        file.write(content)
      os.fsync(file.fileno())

  _seconds(copy)  # the files are in the page cache from here on
  return {'images': (build, copy)}


def _mnist_pairs(
  source_dir: str, threads: int
) -> dict[str, tuple[_Timed, _Timed]]:
  request = mnist_source.Request(source_dir, verify_checksums=False)
  facts = mnist_source.FACTS
  splits = mnist_source.from_idx(request).splits

  def convert(folder):
    convert_mnist.convert(
      str(folder),
      source='idx',
      request=request,
      options=sharding.Options(num_threads=threads),
    )

  def records(split):
    images, labels = split
    pngs = tf.io.encode_png(
      images[..., None], compression=convert_arrays.COMPRESSION
    ).numpy()
    for png, label in zip(pngs, labels.tolist(), strict=True):
      yield features.serialize(
        {
          **features.of_image(
            b'png', facts.shape, label, facts.class_names[label]
          ),
          **features.of_boxes(),
          features.IMAGE: features.of_bytes(png),
        }
      )

  ready = {name: list(records(split)) for name, split in splits.items()}

  def write(folder, payloads):
    for name, some in payloads:
      with tf.io.TFRecordWriter(str(folder / name)) as writer:
        for payload in some:
          writer.write(payload)

  def encode_and_write(folder):
    write(folder, ((name, records(part)) for name, part in splits.items()))

  return {
    'mnist': (convert, encode_and_write),
    'mnist, ready records': (convert, lambda f: write(f, ready.items())),
  }


def run() -> int:
  """Runs the program; returns the exit code."""
  return command_line.run(USAGE, Config, main)


if __name__ == '__main__':
  sys.exit(run())
