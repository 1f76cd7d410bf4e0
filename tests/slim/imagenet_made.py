"""Makes a small ImageNet in the layout of its site."""

import functools
import os
import pathlib
import tarfile

import pytest

from terngrad.cli.convert import imagenet
from tests.slim import archives_made
from tests.slim import image_files

SYNSETS = ('n01440764', 'n01443537', 'n02105855')
NAMES = ('tench, Tinca tinca', 'goldfish', 'Shetland sheepdog')
# Of validation images 1, 2, ...
VALIDATION = ('n02105855', 'n01440764', 'n01440764', 'n01443537')


def annotation(
  name, box=(40, 30, 360, 270), label=None, size=(400, 300), more=''
):
  xmin, ymin, xmax, ymax = box
  label = label or name.partition('_')[0]
  return (
    f'<annotation><filename>{name}</filename><size><width>{size[0]}</width>'
    f'<height>{size[1]}</height><depth>3</depth></size><object><name>{label}'
    f'</name><bndbox><xmin>{xmin}</xmin><ymin>{ymin}</ymin><xmax>{xmax}</xmax>'
    f'<ymax>{ymax}</ymax></bndbox></object>{more}</annotation>'
  ).encode()


def training_images():
  """Returns {synset/file: content}, with a CMYK file and a PNG among them."""
  found = {}
  for i, synset in enumerate(SYNSETS):
    for number in range(4):
      seed = 10 * i + number
      found[f'{synset}/{synset}_{number}.JPEG'] = image_files.jpeg(seed)
  cmyk = image_files.picture(seed=5).convert('CMYK')
  found[f'{SYNSETS[0]}/{SYNSETS[0]}_7.JPEG'] = image_files.saved(cmyk, 'JPEG')
  png = image_files.saved(image_files.picture(seed=6), 'PNG')
  found[f'{SYNSETS[2]}/{SYNSETS[2]}_2933.JPEG'] = png
  return found


def validation_images():
  """Returns {file: content}."""
  return {
    f'ILSVRC2012_val_{number:08d}.JPEG': image_files.jpeg(20 + number)
    for number in range(1, len(VALIDATION) + 1)
  }


def real_samples():
  """Returns {synset/file: content} of 40 real photos; skips without them."""
  folder = os.getenv('TERNGRAD_TEST_DATA')
  if not folder:
    pytest.skip('TERNGRAD_TEST_DATA names no folder with imagenet_samples_40')
  photos = {}
  with tarfile.open(pathlib.Path(folder) / 'imagenet_samples_40.tar') as tar:
    for member in filter(tarfile.TarInfo.isfile, tar):
      synset = pathlib.PurePosixPath(member.name).name.partition('_')[0]
      photos[f'{synset}/{synset}_1.JPEG'] = tar.extractfile(member).read()
  return photos


def convert_samples(photos, folder, shards):
  """Writes real samples as the split train; returns their folder."""
  synsets = sorted(name.partition('/')[0] for name in photos)
  (folder / 'train.tar').write_bytes(train_tar(photos, synsets))
  (folder / 'synsets.txt').write_text('\n'.join(synsets))
  imagenet.act(
    imagenet.ConvertImagenetFlags(
      train_directory=str(folder / 'train.tar'),
      validation_directory='',
      output_directory=str(folder / 'out'),
      train_shards=shards,
      labels_file=str(folder / 'synsets.txt'),
      imagenet_metadata_file='',
      bounding_box_file='',
    )
  )
  return folder / 'out'


def train_tar(images, synsets=SYNSETS):
  """A tar of one tar a synset."""
  inner = {
    synset: archives_made.tar(
      archives_made.member(name.partition('/')[2], content)
      for name, content in images.items()
      if name.startswith(synset)
    )
    for synset in synsets
  }
  return archives_made.tar(
    archives_made.member(f'{synset}.tar', content)
    for synset, content in inner.items()
  )


@functools.cache
def files():
  """Returns {name: content} of all that the site and its lists have.

  Always the same: gzip writes the time into its archives.
  """
  boxes = archives_made.tar(
    [
      archives_made.member(f'{s}/{s}_0.xml', annotation(f'{s}_0'))
      for s in SYNSETS
    ],
    'w:gz',
  )
  metadata = '\n'.join(map('\t'.join, zip(SYNSETS, NAMES, strict=True)))
  return {
    'ILSVRC2012_img_train.tar': train_tar(training_images()),
    'ILSVRC2012_img_val.tar': archives_made.tar(
      archives_made.member(name, content)
      for name, content in validation_images().items()
    ),
    'ILSVRC2012_bbox_train_v2.tar.gz': boxes,
    'imagenet_lsvrc_2015_synsets.txt': '\n'.join(SYNSETS).encode(),
    'imagenet_2012_validation_synset_labels.txt': '\n'.join(
      VALIDATION
    ).encode(),
    'imagenet_metadata.txt': metadata.encode(),
  }


def write(folder, names=None):
  """Writes those files; returns the folder."""
  folder.mkdir(parents=True, exist_ok=True)
  for name, content in files().items():
    if names is None or name in names:
      (folder / name).write_bytes(content)
  return folder
