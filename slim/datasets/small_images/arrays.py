"""Data sets of small images, which fit in memory."""

import hashlib
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from slim import errors
from slim.datasets.small_images import tfds_arrays

TFDS_SECONDS = 60  # time limit of the download; MNIST has 11 MB

_ROOT = pathlib.Path(__file__).resolve().parents[3]


class Facts(NamedTuple):
  """The constants of a data set.

  Attributes:
    name: name of the data set, here and in tensorflow-datasets.
    title: name in messages.
    class_names: names of the labels, from label 0.
    shape: height, width and channels of every image.
    splits: names of the splits.
    tfds_seconds: time limit of the download with tensorflow-datasets.
  """

  name: str
  title: str
  class_names: tuple[str, ...]
  shape: tuple[int, int, int]
  splits: tuple[str, ...]
  tfds_seconds: float = TFDS_SECONDS


class SplitArrays(NamedTuple):
  """The examples of one split.

  Attributes:
    images: uint8 [N, height, width, channels], or [N, height, width] if there
      is one channel.
    labels: uint8 [N].
  """

  images: np.ndarray
  labels: np.ndarray


class ArraySource(NamedTuple):
  """A whole data set.

  Attributes:
    description: origin of the data, for messages.
    splits: arrays by name of the split.
  """

  description: str
  splits: dict[str, SplitArrays]


class SourceOptions(NamedTuple):
  """Options of a source.

  Attributes:
    source_dir: folder with the files that the authors publish, or None.
    verify_checksums: refuses files that differ from the authors' files.
  """

  source_dir: str | None = None
  verify_checksums: bool = True


# Functions that read or download a data set, by name.
Sources = dict[str, Callable[[SourceOptions], ArraySource]]


def identity(source: ArraySource) -> str:
  """Returns a hash of all images and labels."""
  digest = hashlib.sha256()
  for name, split in source.splits.items():
    digest.update(name.encode())
    digest.update(np.ascontiguousarray(split.images).data)
    digest.update(np.ascontiguousarray(split.labels).data)
  return digest.hexdigest()


def check_split(facts: Facts, split: SplitArrays, origin: str) -> SplitArrays:
  """Checks that images and labels fit the data set.

  Args:
    facts: constants of the data set.
    split: the arrays of a source.
    origin: name of the source, for the message.

  Returns:
    `split`, without the channel dimension if there is one channel.

  Raises:
    slim.errors.DataError: a shape or dtype differs, or a label is out of
      range.
  """
  images, labels = split
  height, width, channels = facts.shape
  if channels == 1 and images.shape[3:] == (1,):
    images = images[..., 0]
  shape = facts.shape if channels > 1 else (height, width)
  classes = len(facts.class_names)
  if images.dtype != np.uint8 or images.shape[1:] != shape:
    received = f'images {images.dtype} {images.shape}'
  elif labels.dtype != np.uint8 or labels.shape != images.shape[:1]:
    received = f'{len(images)} images, labels {labels.dtype} {labels.shape}'
  elif not len(labels) or labels.max() >= classes:
    received = f'label {labels.max(initial=0)} among {len(labels)} labels'
  else:
    return SplitArrays(images, labels)
  raise errors.DataError(
    f'{origin}: expected uint8 [N, {", ".join(map(str, shape))}] images and '
    f'[N] labels below {classes}; received {received}. Download them again.'
  )


def from_tfds(
  facts: Facts, request: SourceOptions, seconds: float | None = None
) -> ArraySource:
  """Downloads with tensorflow-datasets, in a process with a time limit.

  Args:
    facts: constants of the data set.
    request: not used.
    seconds: time limit, after which the process is killed; None uses that of
      `facts`.

  Raises:
    slim.errors.DataError: the download failed or exceeded the time limit.
  """
  del request
  seconds = facts.tfds_seconds if seconds is None else seconds
  # Lets the process import this package from any working directory.
  path = os.pathsep.join(filter(None, (str(_ROOT), os.getenv('PYTHONPATH'))))
  with tempfile.TemporaryDirectory(prefix=f'{facts.name}-tfds-') as folder:
    try:
      child = subprocess.run(
        [
          sys.executable,
          '-m',
          'slim.datasets.small_images.tfds_arrays',
          facts.name,
          folder,
        ],
        env={**os.environ, 'PYTHONPATH': path, 'CUDA_VISIBLE_DEVICES': ''},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        timeout=seconds,
        check=False,
      )
    except subprocess.TimeoutExpired as error:
      raise _no_tfds(facts, f'nothing after {seconds:g} seconds') from error
    if child.returncode:
      lines = child.stderr.decode(errors='replace').strip().splitlines()
      raise _no_tfds(facts, f'"{lines[-1] if lines else child.returncode}"')
    splits = {}
    for name in facts.splits:
      split = SplitArrays(
        np.load(f'{folder}/{name}-images.npy'),
        np.load(f'{folder}/{name}-labels.npy'),
      )
      splits[name] = check_split(facts, split, f'tensorflow-datasets, {name}')
  return ArraySource('tensorflow-datasets', splits)


def _no_tfds(facts: Facts, received: str) -> errors.DataError:
  address, files = tfds_arrays.FILES[facts.name]
  return errors.DataError(
    f'tensorflow-datasets: expected {facts.title} from the network; received '
    f'{received}. Download {", ".join(files)} from {address} by other means, '
    'and pass the folder with --source_dir.'
  )
