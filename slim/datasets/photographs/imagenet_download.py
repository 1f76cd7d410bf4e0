"""Fetches what ImageNet's shards are made of, and finds what is there."""

import pathlib
from collections import abc
from typing import NamedTuple

from absl import logging

from slim import errors
from slim.datasets.files import archives
from slim.datasets.files import downloads
from slim.datasets.photographs import imagenet_boxes
from slim.datasets.photographs import imagenet_lists
from slim.datasets.records import disk

SITE = 'https://image-net.org/data/ILSVRC/2012/'
LISTS_SITE = (
  'https://raw.githubusercontent.com/tensorflow/models/master/research/slim/'
  'datasets/'
)

TRAIN = 'ILSVRC2012_img_train.tar'
VALIDATION = 'ILSVRC2012_img_val.tar'
BOXES = 'ILSVRC2012_bbox_train_v2.tar.gz'
# As the site publishes them; it publishes no better hash.
MD5 = {
  TRAIN: '1d675b47d978889d74fa0da5fadfb00e',
  VALIDATION: '29b22e2961454d5413ddabcf34fc5622',
  BOXES: '9271167e2176350e65cfe4e546f14b17',
}

# Names under which each list may be there; the first is fetched.
SYNSETS = ('imagenet_lsvrc_2015_synsets.txt', 'synsets.txt')
LABELS = (
  'imagenet_2012_validation_synset_labels.txt',
  'validation_synset_labels.txt',
)
METADATA = ('imagenet_metadata.txt',)

BOXES_LIST = 'imagenet_2012_bounding_boxes.csv'


class Sites(NamedTuple):
  """Where to fetch from.

  Attributes:
    images: address of the folder of the tars, with its last slash.
    lists: address of the folder of the lists, with its last slash.
  """

  images: str = SITE
  lists: str = LISTS_SITE


def fetch(
  folder: pathlib.Path,
  sites: Sites,
  client: downloads.Client,
  shard_bytes: abc.Callable[[int], int],
) -> None:
  """Fetches what is not there yet, after a look at the free space.

  Args:
    folder: to put it into.
    sites: where from.
    client: how; its credentials are for the site of the images.
    shard_bytes: says for the size of the tars what the shards will need.

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
  """Refuses a folder in which something is missing or another file.

  Args:
    folder: of the tars and lists.
    verify_checksums: read all of the tars, too.

  Raises:
    slim.errors.DataError: names all that is missing, or the tar.
  """
  needed = [(name,) for name in MD5] + [SYNSETS, LABELS]
  missing = [names[0] for names in needed if not _find(folder, names).is_file()]
  if missing:
    raise errors.DataError(
      f'{folder}: expected {", ".join(missing)}; received a folder without. '
      'Put them there, or fetch them with --download.'
    )
  for name, digest in MD5.items():
    if verify_checksums:
      logging.info('Checking %s.', folder / name)
      with archives.refusing_damage(folder / name):
        archives.check_hash(folder / name, 'md5', digest)


def classes(folder: pathlib.Path) -> imagenet_lists.Classes:
  """Reads the lists, and makes that of the boxes from their archive.

  Args:
    folder: that `check` passed.

  Returns:
    What is known of the classes.

  Raises:
    slim.errors.DataError: a list or an annotation cannot be read.
  """
  synsets = imagenet_lists.synsets(_find(folder, SYNSETS))
  metadata = _find(folder, METADATA)
  has_names = metadata.is_file()
  if not has_names:
    logging.info('No %s: classes are called by their synsets.', metadata)
  names = imagenet_lists.names(metadata) if has_names else {}
  found = imagenet_boxes.process(folder / BOXES, synsets)
  path = folder / BOXES_LIST
  disk.write_text(path, ''.join(f'{line}\n' for line in found.lines))
  return imagenet_lists.Classes(synsets, names, imagenet_boxes.read(path))


def validation_labels(folder: pathlib.Path, synsets: list[str]) -> list[int]:
  """Reads the labels of the validation images.

  Args:
    folder: that `check` passed.
    synsets: of the classes.

  Returns:
    As `slim.datasets.photographs.imagenet_lists.validation_labels`.

  Raises:
    slim.errors.DataError: as that.
  """
  return imagenet_lists.validation_labels(_find(folder, LABELS), synsets)


def _find(folder: pathlib.Path, names: abc.Iterable[str]) -> pathlib.Path:
  """Returns the first of these files that is there; if none is, the first."""
  paths = [folder / name for name in names]
  return next((path for path in paths if path.is_file()), paths[0])
