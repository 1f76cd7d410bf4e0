"""Measures the data set converters relative to a reference.

Conversion and reference alternate in rounds. The result is the median over the
rounds of the ratio within a round, so a change of the machine's speed affects
both.
"""

import concurrent.futures
import os
import pathlib
import statistics
import tempfile
import time
from collections import abc
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from slim.datasets.photographs import image_folders
from slim.datasets.photographs import labeled_images
from slim.datasets.records import features
from slim.datasets.records import sharding
from slim.datasets.small_images import convert_arrays
from slim.datasets.small_images import convert_mnist
from slim.datasets.small_images import mnist_source

_Timed = abc.Callable[[pathlib.Path], None]


class Compared(NamedTuple):
  """Times of a conversion and of its reference.

  Attributes:
    ratio: median over the rounds of the conversion's time relative to the
      reference's.
    seconds: median times of the conversion and of the reference.
  """

  ratio: float
  seconds: tuple[float, float]


def compare(measured: _Timed, reference: _Timed, rounds: int) -> Compared:
  """Times two jobs in alternation, each in a new empty directory.

  Args:
    measured: the conversion; takes the directory to write into.
    reference: the reference; takes the directory to write into.
    rounds: >= 1.
  """
  seconds = [(_seconds(measured), _seconds(reference)) for _ in range(rounds)]
  first, second = map(statistics.median, zip(*seconds, strict=True))
  ratio = statistics.median(a / b for a, b in seconds)
  return Compared(ratio, (first, second))


def _seconds(act: _Timed) -> float:
  with tempfile.TemporaryDirectory(prefix='measure-data-') as folder:
    start = time.perf_counter()
    act(pathlib.Path(folder))
    return time.perf_counter() - start


def image_pairs(
  source: pathlib.Path, threads: int
) -> dict[str, tuple[_Timed, _Timed]]:
  """Returns the jobs that `compare` takes for directories of images.

  The reference reads and copies the same bytes and decodes each image once.

  Args:
    source: directory with one directory of JPEGs per class.
    threads: number of threads of both jobs.

  Returns:
    The conversion and its reference, by the measurement's name.

  Raises:
    slim.errors.DataError: there are no images.
  """
  names = image_folders.class_folders(source)
  items = image_folders.find(source, names, 1)

  def build(folder: pathlib.Path) -> None:
    plan = labeled_images.plan(
      'images',
      [image_folders.BACKGROUND, *names],
      {'train': labeled_images.shuffled(items)},
      {'train': sharding.file_names('train', 2)},
      str(source),
    )
    sharding.write(folder, plan, sharding.ConversionOptions(threads))

  def read_and_decode(item: labeled_images.Item) -> bytes:
    content = pathlib.Path(item.file.path).read_bytes()
    tf.io.decode_jpeg(content, channels=3)
    return content

  def copy(folder: pathlib.Path) -> None:
    with (
      concurrent.futures.ThreadPoolExecutor(threads) as pool,
      open(folder / 'copy', 'wb') as file,
    ):
      for content in pool.map(read_and_decode, items):
        file.write(content)
      os.fsync(file.fileno())

  _seconds(copy)  # loads the files into the page cache
  return {'images': (build, copy)}


def mnist_pairs(
  source_dir: str, threads: int
) -> dict[str, tuple[_Timed, _Timed]]:
  """Returns the jobs that `compare` takes for MNIST.

  The first reference encodes the same images in one call and writes the same
  records with a plain TFRecordWriter. The second writes records encoded before.

  Args:
    source_dir: directory of the four idx files.
    threads: number of threads of the conversion.

  Returns:
    The conversion and a reference, by the measurement's name.

  Raises:
    slim.errors.DataError: the files cannot be used.
  """
  request = mnist_source.SourceOptions(source_dir, verify_checksums=False)
  splits = mnist_source.from_idx(request).splits

  def convert(folder: pathlib.Path) -> None:
    convert_mnist.convert(
      str(folder),
      source='idx',
      request=request,
      options=sharding.ConversionOptions(num_threads=threads),
    )

  ready = {name: list(_records(*split)) for name, split in splits.items()}

  def write(
    folder: pathlib.Path, payloads: abc.Callable[[str], abc.Iterable[bytes]]
  ) -> None:
    for name in splits:
      with tf.io.TFRecordWriter(str(folder / name)) as writer:
        for payload in payloads(name):
          writer.write(payload)

  def encode_and_write(folder: pathlib.Path) -> None:
    write(folder, lambda name: _records(*splits[name]))

  return {
    'mnist': (convert, encode_and_write),
    'mnist, ready records': (convert, lambda f: write(f, ready.__getitem__)),
  }


def _records(images: np.ndarray, labels: np.ndarray) -> abc.Iterator[bytes]:
  """Yields the serialized records of MNIST images."""
  facts = mnist_source.FACTS
  pngs = tf.io.encode_png(
    images[..., None], compression=convert_arrays.COMPRESSION
  ).numpy()
  for png, label in zip(pngs, labels.tolist(), strict=True):
    yield features.serialize(
      {
        **features.image_features(
          b'png', facts.shape, label, facts.class_names[label]
        ),
        **features.box_features(),
        features.IMAGE: features.bytes_feature(png),
      }
    )
