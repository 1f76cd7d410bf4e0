"""Downloads ImageNet (ILSVRC 2012) and writes it as shards."""

import dataclasses
import getpass
import os
import pathlib
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from slim.datasets.files import downloads
from slim.datasets.photographs import imagenet_download
from terngrad import lazy
from terngrad.cli import flags
from terngrad.cli.convert import writing
from terngrad.config import options

if TYPE_CHECKING:
  from slim.datasets.photographs import imagenet as imagenet_types

imagenet = lazy.module('slim.datasets.photographs.imagenet')
labeled_images = lazy.module('slim.datasets.photographs.labeled_images')

USAGE = """\
{program}: writes ImageNet (ILSVRC 2012) as shards.

  {program} D [--download]

Reads from D: ILSVRC2012_img_train.tar, ILSVRC2012_img_val.tar,
ILSVRC2012_bbox_train_v2.tar.gz, imagenet_lsvrc_2015_synsets.txt,
imagenet_2012_validation_synset_labels.txt and, if it exists,
imagenet_metadata.txt. --download first downloads missing files. It takes the
credentials from IMAGENET_USERNAME and IMAGENET_ACCESS_KEY, or asks for them.
The tars are not unpacked, except with --unpack. The environment variables
RAW_PIXEL and RESIZE_DIMEN set the flags of these names that are not given.
"""

_TRUE = ('true', 't', '1')

option = options.option


@dataclasses.dataclass(frozen=True)
class ConvertDownloadImagenetFlags(writing.TwoSplits):
  """The flags of `terngrad convert download_imagenet`."""

  data_dir: str = option('', 'Folder D.')
  output_directory: str = option(
    '', 'Folder to write the shards into; empty: D.'
  )
  download: bool = option(False, 'Download the files that D lacks.')
  images_url: str = option(
    imagenet_download.SITE, 'URL of the folder of the tars.'
  )
  lists_url: str = option(
    imagenet_download.LISTS_SITE, 'URL of the folder of the lists.'
  )
  verify_checksums: bool = option(
    True, 'Refuse tars whose checksums differ from the published ones.'
  )
  unpack: bool = option(
    False, 'Also write the images as files, D/raw-data/<split>/<synset>/.'
  )
  raw_pixel: bool = option(False, 'Store pixels in RGB instead of JPEGs.')
  resize_dimen: int = option(
    0, 'With raw_pixel: resize to this height and width; 0 keeps them.'
  )
  train_shards: int = option(1024, 'Files of the training split.', 'shards')
  validation_shards: int = option(
    128, 'Files of the validation split.', 'shards'
  )
  given: frozenset[str] = frozenset()  # the flags of the command line


def act(values: ConvertDownloadImagenetFlags) -> None:
  """Downloads, checks and converts ImageNet, or verifies the shards.

  Raises:
    slim.errors.DataError: the data cannot be used.
    terngrad.cli.flags.UsageError: RESIZE_DIMEN is not a number of pixels.
  """
  folder = pathlib.Path(values.data_dir)
  output = values.output_directory or values.data_dir
  if values.verify:
    writing.verify(output)
    return
  pixels, names = _pixels(values), values.names
  if values.download:
    client = downloads.Client(_credentials(), values.verify_checksums)
    imagenet_download.fetch(
      folder,
      imagenet_download.Sites(values.images_url, values.lists_url),
      client,
      _shard_bytes(pixels),
    )
  imagenet_download.check(
    folder, values.verify_checksums and not values.download
  )
  classes = imagenet_download.classes(folder)
  synsets = classes.synsets
  splits = {
    'train': imagenet.training_items(folder / imagenet_download.TRAIN, synsets),
    'validation': imagenet.validation_items(
      folder / imagenet_download.VALIDATION,
      synsets,
      imagenet_download.validation_labels(folder, synsets),
    ),
  }
  if values.unpack:
    for split, items in splits.items():
      labeled_images.unpack(items, ['', *synsets], folder / 'raw-data' / split)
  plan = imagenet.plan(splits, names, classes, pixels, str(folder))
  writing.build(dataclasses.replace(values, output_directory=output), plan)


def _pixels(values: ConvertDownloadImagenetFlags) -> 'imagenet_types.Pixels':
  """Returns the pixel format to store, from flags and environment."""
  side = os.getenv('RESIZE_DIMEN') or '0'
  if not side.isdecimal():
    raise flags.UsageError(
      f'RESIZE_DIMEN: expected a number of pixels; received {side!r}. Correct '
      'it in the environment, or unset it.'
    )
  raw, resized = values.raw_pixel, values.resize_dimen
  if 'raw_pixel' not in values.given:
    raw = raw or os.getenv('RAW_PIXEL', '').lower() in _TRUE
  if 'resize_dimen' not in values.given:
    resized = resized or int(side)
  return imagenet.Pixels(raw, resized)


def _shard_bytes(pixels: 'imagenet_types.Pixels') -> Callable[[int], int]:
  """Returns a function from the size of the tars to that of the shards."""
  if pixels.side:
    # 110 kB is the mean size of ImageNet's JPEGs.
    return lambda total: total // 110_000 * 3 * pixels.side**2
  # The JPEGs have a little more than a tenth of the bytes of their pixels.
  return lambda total: total * (10 if pixels.raw else 1)


def _credentials() -> downloads.Credentials:
  """Reads credentials from the environment, or asks for them."""
  user = os.getenv('IMAGENET_USERNAME')
  key = os.getenv('IMAGENET_ACCESS_KEY')
  if not (user and key):
    if not sys.stdin.isatty():
      raise flags.UsageError(
        'IMAGENET_USERNAME and IMAGENET_ACCESS_KEY: expected both in the '
        'environment, since standard input is no terminal; received '
        f'{"one" if user or key else "neither"}. Register at image-net.org, '
        'and set them.'
      )
    user = user or input('Your user name at image-net.org: ')
    key = key or getpass.getpass('Your access key or password: ')
  return downloads.Credentials(user, key)


COMMAND = writing.converter(
  USAGE,
  ConvertDownloadImagenetFlags,
  act,
  words=('data_dir',),
  required=('data_dir',),
  given='given',
)
