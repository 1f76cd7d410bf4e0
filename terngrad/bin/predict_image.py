"""Says what a trained net sees in image files."""

import dataclasses
import sys

import tensorflow as tf

from slim import errors as data_errors
from slim.datasets import catalog
from slim.datasets import labels
from slim.datasets import single_images
from terngrad.checkpoint import trained
from terngrad.cluster import devices
from terngrad.config import config as configs
from terngrad.program import flags
from terngrad.program import main
from terngrad.report import guesses

USAGE = """\
predict_image: says what a trained net sees in image files.

  predict_image --checkpoint_dir=T --dataset_name=flowers --data_dir=D \\
      --images=a.jpg,b.png

The net is that of the checkpoint. The data set says how images are prepared;
labels.txt in --data_dir says how the classes are called.
"""

option = configs.option


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flags:
  """The flags."""

  images: str = option(
    '', 'Image files, separated by commas: JPEG, PNG, GIF, BMP, WebP.', 'data'
  )
  checkpoint_dir: str = option(
    '', 'Checkpoint prefix, or a folder: its newest.', 'run'
  )
  dataset_name: str = option('imagenet', 'Data set it was trained on.', 'data')
  data_dir: str = option('', 'Folder with labels.txt; empty: numbers.', 'data')
  labels_offset: int = option(0, 'As in training.', 'data')
  image_size: int = option(
    0, "Height and width of the input; 0: the net's own.", 'data'
  )
  preprocessing: str = option('', 'As in training.', 'data')
  top: int = option(5, 'Classes to name for each image.', 'run')
  tower: int = option(-1, "Read this node's parameters.", 'devices')
  device: str = option('/gpu:0', 'Device to run on.', 'devices')
  restore_avg_var: bool = option(
    True, 'Read the moving averages of the parameters.', 'model'
  )


def act(values):
  """Prints a line for each image; returns the exit code."""
  paths = [path for path in values.images.split(',') if path]
  for name, given in (('images', paths), ('checkpoint_dir', True)):
    if not (given and getattr(values, name)):
      raise flags.UsageError(
        f'--{name}: expected a value, received none. See --help.'
      )
  dataset = data_errors.lookup(
    catalog.DATASETS, values.dataset_name, 'data set'
  )
  devices.grow_memory()
  net = trained.load(
    trained.Options(
      checkpoint_dir=values.checkpoint_dir,
      image_size=values.image_size,
      tower=values.tower,
      device=values.device,
      restore_avg_var=values.restore_avg_var,
    ),
    dataset.channels,
  )
  names = names_of(values, dataset)
  target = single_images.Target(
    values.dataset_name,
    net.layout.net,
    net.image_size,
    values.preprocessing,
  )
  images = tf.stack([single_images.load(path, target) for path in paths])
  for path, row in zip(
    paths, trained.probabilities(net.model, images).numpy(), strict=True
  ):
    found = guesses.best(row, names, values.top)
    said = ', '.join(f'{g.name} {100 * g.confidence:.2f} %' for g in found)
    main.say(f'{path}: {said}')
  return main.DONE


def names_of(values, dataset):
  """Name by logit, or None where there is no labels.txt."""
  if not values.data_dir:
    return None
  names = labels.read(values.data_dir, first_label=dataset.first_label) or {}
  return {label - values.labels_offset: name for label, name in names.items()}


def run():
  """Runs the program; returns the exit code."""
  return main.run(Flags, USAGE, {}, act)


if __name__ == '__main__':
  sys.exit(run())
