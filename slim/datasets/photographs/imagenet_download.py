"""Downloads ImageNet's archives and lists, and finds existing ones."""

import pathlib
from collections import abc
from typing import NamedTuple

from absl import logging

from slim import errors
from slim.datasets.files import archives
from slim.datasets.files import downloads
from slim.datasets.photographs import imagenet_boxes
from slim.datasets.photographs import imagenet_lists

SITE = 'https://image-net.org/data/ILSVRC/2012/'
LISTS_SITE = (
  'https://raw.githubusercontent.com/tensorflow/models/master/research/slim/'
  'datasets/'
)

TRAIN = 'ILSVRC2012_img_train.tar'
VALIDATION = 'ILSVRC2012_img_val.tar'
BOXES = 'ILSVRC2012_bbox_train_v2.tar.gz'
# As published by the site, which publishes no better digests.
MD5 = {
  TRAIN: '1d675b47d978889d74fa0da5fadfb00e',
  VALIDATION: '29b22e2961454d5413ddabcf34fc5622',
  BOXES: '9271167e2176350e65cfe4e546f14b17',
}

# Accepted file names of each list; the first is downloaded.
SYNSETS = ('imagenet_lsvrc_2015_synsets.txt', 'synsets.txt')
LABELS = (
  'imagenet_2012_validation_synset_labels.txt',
  'validation_synset_labels.txt',
)
METADATA = ('imagenet_metadata.txt',)


class Sites(NamedTuple):
  """Addresses to download from.

  Attributes:
    images: address of the folder of the tars, ending with a slash.
    lists: address of the folder of the lists, ending with a slash.
  """

  images: str = SITE
  lists: str = LISTS_SITE


def fetch(
  folder: pathlib.Path,
  sites: Sites,
  client: downloads.Client,
  shard_bytes: abc.Callable[[int], int],
) -> None:
  """Downloads missing files, after a check of the free space.

  Args:
    folder: output folder.
    sites: addresses to download from.
    client: options of downloads; its credentials are sent only to the site of
      the images.
    shard_bytes: takes the size of the tars; returns that of the shards, in
      bytes.

  Raises:
    slim.errors.DataError: as `files.downloads.fetch` and `check_space`.
  """
  tars = [
    downloads.Remote(f'{sites.images}{name}', name, 'md5', digest)
    for name, digest in MD5.items()
  ]
  downloads.check_space(folder, tars, client, shard_bytes)
  anonymous = client._replace(credentials=None)
  for names in (SYNSETS, LABELS, METADATA):
    if not _find(folder, names).is_file():
      remote = downloads.Remote(f'{sites.lists}{names[0]}', names[0])
      downloads.fetch(remote, folder, anonymous)
  for remote in sorted(tars, key=lambda remote: remote.name != BOXES):
    downloads.fetch(remote, folder, client)


def check(folder: pathlib.Path, verify_checksums: bool) -> None:
  """Refuses a folder with missing or different files.

  Args:
    folder: the folder of the tars and lists.
    verify_checksums: also reads the whole tars and checks their digests.

  Raises:
    slim.errors.DataError: files are missing, all of which the message names,
      or a tar has another digest.
  """
  needed = [(name,) for name in MD5] + [SYNSETS, LABELS]
  missing = [names[0] for names in needed if not _find(folder, names).is_file()]
  if missing:
    raise errors.DataError(
      f'{folder}: expected {", ".join(missing)}; received a folder without '
      'them. Put them into it, or download them with --download.'
    )
  for name, digest in MD5.items():
    if verify_checksums:
      logging.info('Checking %s.', folder / name)
      with archives.refusing_damage(folder / name):
        archives.check_hash(folder / name, 'md5', digest)


def classes(folder: pathlib.Path) -> imagenet_lists.Classes:
  """Reads the lists, and the boxes from their archive.

  Args:
    folder: a folder that `check` accepts.

  Returns:
    Synsets, names and boxes.

  Raises:
    slim.errors.DataError: a list or an annotation cannot be read.
  """
  synsets = imagenet_lists.synsets(_find(folder, SYNSETS))
  metadata = _find(folder, METADATA)
  has_names = metadata.is_file()
  if not has_names:
    logging.info('No %s: using the synsets as class names.', metadata)
  names = imagenet_lists.names(metadata) if has_names else {}
  path = folder / BOXES
  lines = imagenet_boxes.process(path, synsets).lines
  return imagenet_lists.Classes(
    synsets, names, imagenet_boxes.parse(lines, path)
  )


def validation_labels(folder: pathlib.Path, synsets: list[str]) -> list[int]:
  """Reads the labels of the validation images.

  Args:
    folder: a folder that `check` accepts.
    synsets: synsets of the classes; the first has label 1.

  Returns:
    Labels, from 1, in the order of the image numbers.

  Raises:
    slim.errors.DataError: the list is unreadable or empty, or has a line that
      is not a class.
  """
  return imagenet_lists.validation_labels(_find(folder, LABELS), synsets)


def _find(folder: pathlib.Path, names: abc.Iterable[str]) -> pathlib.Path:
  """Returns the first of these files that exists; if none does, the first."""
  paths = [folder / name for name in names]
  return next((path for path in paths if path.is_file()), paths[0])
