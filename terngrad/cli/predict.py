"""The command that classifies images or continues text with a trained net."""

import dataclasses
import os
from typing import TYPE_CHECKING

from terngrad import lazy
from terngrad.cli import command
from terngrad.cli import flags
from terngrad.config import options

if TYPE_CHECKING:
  from slim.datasets import catalog as catalog_types
  from terngrad.checkpoint import trained as trained_types

catalog = lazy.module('slim.datasets.catalog')
devices = lazy.module('terngrad.cluster.devices')
predicted_classes = lazy.module('terngrad.report.predicted_classes')
generation = lazy.module('terngrad.checkpoint.generation')
image_folder = lazy.module('slim.datasets.image_folder')
labels = lazy.module('slim.datasets.labels')
nets = lazy.module('slim.nets.factory')
single_images = lazy.module('slim.datasets.single_images')
tf = lazy.module('tensorflow')
trained = lazy.module('terngrad.checkpoint.trained')

USAGE = """\
{program}: classifies image files, or continues text, with a trained net.

  {program} --checkpoint_dir=T --data_dir=D --images=a.jpg,b.png
  {program} --checkpoint_dir=T --data_dir=D --prompt='def main('

The checkpoint defines the net, the data set, the size of the images, their
preprocessing and the offset of the labels. The names of the classes are read
from labels.txt in --data_dir; for an image_folder they are the folders of its
training split. A language model continues the text of --prompt with the
tokenizer of --data_dir; equal seeds give equal text.
"""

option = options.option


@dataclasses.dataclass(frozen=True, kw_only=True)
class PredictFlags:
  """The flags of `terngrad predict`."""

  images: str = option(
    '',
    'Image files, separated by commas, or one whose name has commas: JPEG, '
    'PNG, GIF, BMP, WebP.',
    'data',
  )
  checkpoint_dir: str = option(
    '', 'Checkpoint prefix, or folder whose newest checkpoint is read.', 'run'
  )
  dataset_name: str = option(
    '', 'Data set it was trained on; empty: as the checkpoint says.', 'data'
  )
  data_dir: str = option(
    '', 'Folder with labels.txt; empty: print class numbers.', 'data'
  )
  labels_offset: int = option(
    0, 'Number subtracted from all labels; 0: as in training.', 'data'
  )
  image_size: int = option(
    0, 'Height and width of the input; 0: as in training.', 'data'
  )
  preprocessing: str = option(
    '', 'Name of the preprocessing; empty: as in training.', 'data'
  )
  prompt: str = option('', 'Text to continue, instead of images.', 'text')
  num_tokens: int = option(200, 'Largest number of tokens to add.', 'text')
  temperature: float = option(
    0.8,
    'Divisor of the logits: 0 takes the most probable token, 1 draws tokens as '
    'probable as the net says.',
    'text',
  )
  seed: int = option(1, 'Random seed of the tokens.', 'text')
  top: int = option(5, 'Number of classes to print for each image.', 'run')
  tower: int = option(
    -1,
    "Read the parameters of this node's device; -1: of the first one stored.",
    'devices',
  )
  device: str = option('/gpu:0', 'Device to run on.', 'devices')
  restore_avg_var: bool = option(
    True, 'Read the moving averages of the parameters.', 'model'
  )
  given: frozenset[str] = frozenset()  # the flags of the command line


# Options that only one of the two inputs reads.
_OF_IMAGES = (
  'dataset_name',
  'image_size',
  'labels_offset',
  'preprocessing',
  'top',
)
_OF_TEXT = ('num_tokens', 'temperature', 'seed')


def act(values: PredictFlags) -> None:
  """Prints the text, or a line with the predicted classes for each image."""
  has_text = bool(values.prompt)
  for name in _OF_IMAGES:
    command.require_beside(values, name, '--images', not has_text, '--prompt')
  for name in _OF_TEXT:
    command.require_beside(values, name, '--prompt', has_text)
  if has_text:
    _continue_text(values)
  else:
    _classify(values)


def _continue_text(values: PredictFlags) -> None:
  command.require(values, 'checkpoint_dir', 'data_dir')
  command.at_least(0, values, 'num_tokens', 'temperature')
  if values.images:
    raise flags.UsageError(
      f'--images: expected none beside --prompt, received {values.images!r}. '
      'Leave one of the two out.'
    )
  devices.grow_memory()
  command.say(
    generation.continue_text(
      _load(values, 1),
      values.data_dir,
      values.prompt,
      generation.Sampling(values.num_tokens, values.temperature, values.seed),
    )
  )


def _load(values: PredictFlags, channels: int) -> 'trained_types.Trained':
  load_options = trained.LoadOptions(
    checkpoint_dir=values.checkpoint_dir,
    image_size=values.image_size,
    tower=values.tower,
    restore_avg_var=values.restore_avg_var,
    device=values.device,
  )
  return trained.load(load_options, channels)


def _classify(values: PredictFlags) -> None:
  command.at_least(0, values, 'labels_offset')
  command.at_least(1, values, 'top')
  paths = [path for path in values.images.split(',') if path]
  if os.path.exists(values.images):
    paths = [values.images]
  if not paths:
    raise flags.UsageError(
      '--images: expected paths, or a --prompt that is not empty, received '
      'neither. Give one of the two.'
    )
  command.require(values, 'checkpoint_dir')
  data_set = values.dataset_name or trained.data_set(values.checkpoint_dir)
  dataset = catalog.find(data_set)
  devices.grow_memory()
  net = _load(values, dataset.channels)
  if nets.find_net(net.layout.net).takes_tokens:
    raise flags.UsageError(
      '--images: expected a checkpoint of a net for images, received one of '
      f'the language model {net.layout.net}. Use --prompt, or another '
      '--checkpoint_dir.'
    )
  offset = values.labels_offset or net.labels_offset
  names = class_names(
    dataclasses.replace(values, labels_offset=offset), dataset
  )
  target = single_images.Target(
    data_set,
    net.layout.net,
    net.image_size,
    values.preprocessing or net.preprocessing,
  )
  images = tf.stack([single_images.load(path, target) for path in paths])
  for path, row in zip(
    paths, trained.probabilities(net.model, images).numpy(), strict=True
  ):
    found = predicted_classes.top_classes(row, names, values.top)
    text = ', '.join(f'{c.name} {100 * c.confidence:.2f} %' for c in found)
    command.say(f'{path}: {text}')


def class_names(
  values: PredictFlags, dataset: 'catalog_types.Dataset'
) -> dict[int, str] | None:
  """Returns class names by logit, or None if the names are unknown."""
  if not values.data_dir:
    return None
  if dataset.storage == 'folder':
    names = image_folder.find_classes(values.data_dir)
  else:
    names = labels.read(values.data_dir, first_label=dataset.first_label) or {}
  return {label - values.labels_offset: name for label, name in names.items()}


COMMAND = command.Command(USAGE, PredictFlags, act, given='given')
