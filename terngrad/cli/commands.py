"""All commands of `terngrad`, in groups.

To add a command: write a module with a `command.Command`, and add one entry
here.
"""

import pkgutil
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
from typing import NamedTuple

from terngrad.cli import command
from terngrad.cli import extras
from terngrad.cli import presets


class Entry(NamedTuple):
  """A command's location, so that listing commands imports nothing.

  Attributes:
    summary: one line that says what the command is for.
    location: `module:name` of a `command.Command`, or of a function that makes
      one from a preset.
    preset: the name of that preset, or ''.
  """

  summary: str
  location: str
  preset: str = ''


class CommandGroup(NamedTuple):
  """A group of commands.

  Attributes:
    summary: one line that says what the commands are for.
    members: the commands, by name.
  """

  summary: str
  members: Mapping[str, Entry]


def _data_set_entries(
  location: str, without: Collection[str] = ()
) -> dict[str, Entry]:
  """Returns one entry per data set, but for some."""
  return {
    name: Entry(preset.title, location, name)
    for name, preset in presets.PRESETS.items()
    if name not in without
  }


COMMANDS: Mapping[str, Entry | CommandGroup] = {
  'convert': CommandGroup(
    'Write a data set in the form that the trainers read.',
    {
      'dataset': Entry(
        'MNIST, Fashion-MNIST, CIFAR-10 or flowers, downloaded if missing',
        'terngrad.cli.convert.dataset:COMMAND',
      ),
      'images': Entry(
        'a folder of your own images, one folder per class',
        'terngrad.cli.convert.images:COMMAND',
      ),
      'text': Entry(
        'text files or folders, as tokens for language models',
        'terngrad.cli.convert.text:COMMAND',
      ),
      'flowers': Entry(
        'the flower photos as `train flowers` reads them',
        'terngrad.cli.convert.flowers:COMMAND',
      ),
      'imagenet': Entry(
        'ImageNet from folders of images',
        'terngrad.cli.convert.imagenet:COMMAND',
      ),
      'download_imagenet': Entry(
        'ImageNet from its archives, downloaded if missing',
        'terngrad.cli.convert.download_imagenet:COMMAND',
      ),
      'imagenet_boxes': Entry(
        "lists the bounding boxes of ImageNet's annotations",
        'terngrad.cli.convert.imagenet_boxes:COMMAND',
      ),
      'imagenet_validation': Entry(
        'sorts the validation images of ImageNet by class',
        'terngrad.cli.convert.imagenet_validation:COMMAND',
      ),
      'tfds': Entry(
        'lets tensorflow-datasets read a converted data set',
        'terngrad.cli.convert.tfds:COMMAND',
      ),
      'database': Entry(
        "an image database, as Caffe2's trainer reads it",
        'terngrad.cli.convert.database:COMMAND',
      ),
    },
  ),
  'train': CommandGroup(
    'Train a net with compressed gradients, in one process or several.',
    {
      **_data_set_entries('terngrad.cli.train:trainer'),
      'slim': Entry(
        "any data set, with TF-Slim's flags",
        'terngrad.cli.slim.train:COMMAND',
      ),
      'resnet50': Entry(
        "an image database, with the flags of Caffe2's trainer",
        'terngrad.cli.trainers.resnet50:COMMAND',
      ),
      'resnet18': Entry(
        "Fashion-MNIST as in DJL's chapter on several GPUs",
        'terngrad.cli.trainers.resnet18:COMMAND',
      ),
    },
  ),
  'distributed_train': CommandGroup(
    'Run one task of a training run with parameter servers.',
    # The servers' queues hold images.
    _data_set_entries('terngrad.cli.train:server_trainer', without=['text']),
  ),
  'eval': CommandGroup(
    'Score the checkpoints of a training run.',
    {
      **_data_set_entries('terngrad.cli.evaluate:scorer'),
      'slim': Entry(
        "any data set, with TF-Slim's flags",
        'terngrad.cli.slim.evaluate:COMMAND',
      ),
    },
  ),
  'sweep': Entry(
    'Run an experiment of many runs, and compare them.',
    'terngrad.cli.sweep:COMMAND',
  ),
  'plan': Entry(
    'Find the gradient code with the fastest step on a network.',
    'terngrad.cli.plan:COMMAND',
  ),
  'predict': Entry(
    'Classify image files with a trained net.',
    'terngrad.cli.predict:COMMAND',
  ),
  'export': Entry(
    'Write a trained net for Keras, TensorFlow Serving or ONNX.',
    'terngrad.cli.export:COMMAND',
  ),
  'launch': Entry(
    'Start all processes of a run or program, on one or several machines.',
    'terngrad.cli.launch:COMMAND',
  ),
  'report': CommandGroup(
    'Report on training runs.',
    {
      'compare': Entry(
        'a table and curves of several runs',
        'terngrad.cli.report.compare:COMMAND',
      ),
      'hosts': Entry(
        'steps of runs on one machine, predicted for several hosts',
        'terngrad.cli.report.hosts:COMMAND',
      ),
      'page': Entry(
        'one HTML file of a run: curves, and images with predictions',
        'terngrad.cli.report.page:COMMAND',
      ),
      'sweep': Entry(
        'an experiment of many runs: spreads, paired differences, a page',
        'terngrad.cli.report.sweep:COMMAND',
      ),
      'targets': Entry(
        'steps, bytes and seconds until the runs of a sweep reach a score',
        'terngrad.cli.report.targets:COMMAND',
      ),
      'tensorboard': Entry(
        "TensorBoard's events as JSON, CSV and PNG",
        'terngrad.cli.report.tensorboard:COMMAND',
      ),
      'gradients': Entry(
        'the gradients of every worker in one step, as a file',
        'terngrad.cli.report.gradients:COMMAND',
      ),
      'histograms': Entry(
        'the effect of clipping and codes on gradients, by variable',
        'terngrad.cli.report.histograms:COMMAND',
      ),
      'net': Entry(
        'layers, parameters and multiply-adds of a net, and its drawing',
        'terngrad.cli.report.net:COMMAND',
      ),
      'versions': Entry(
        'the versions that all hosts of a run must share',
        'terngrad.cli.report.versions:COMMAND',
      ),
    },
  ),
  'check': CommandGroup(
    'Check what you wrote.',
    {
      'codec': Entry(
        'a gradient code: does it keep the rules of all codes?',
        'terngrad.cli.check.codec:COMMAND',
      ),
    },
  ),
  'measure': CommandGroup(
    'Measure speed, bytes and quality, as ratios within one run.',
    {
      'bytes': Entry(
        'bytes that a worker sends', 'terngrad.cli.measure.bytes:COMMAND'
      ),
      'codec': Entry(
        'codecs: speed and quality', 'terngrad.cli.measure.codec:COMMAND'
      ),
      'data': Entry('the converters', 'terngrad.cli.measure.data:COMMAND'),
      'eval': Entry(
        'an evaluation, relative to a bare forward pass',
        'terngrad.cli.measure.evaluation:COMMAND',
      ),
      'exchange': Entry(
        'steps of several processes: time, and bytes on the network',
        'terngrad.cli.measure.exchange:COMMAND',
      ),
      'fit': Entry(
        "steps of Keras's fit, relative to those without compression",
        'terngrad.cli.measure.fit:COMMAND',
      ),
      'gpu': Entry(
        'a GPU: words, repeated runs, times of codes and steps',
        'terngrad.cli.measure.gpu:COMMAND',
      ),
      'local_steps': Entry(
        'local steps in fit, relative to computing alone',
        'terngrad.cli.measure.local_steps:COMMAND',
      ),
      'pipeline': Entry(
        'the training pipeline for photographs',
        'terngrad.cli.measure.pipeline:COMMAND',
      ),
      'scaling': Entry(
        'training speed by the number of devices and processes',
        'terngrad.cli.measure.scaling:COMMAND',
      ),
      'first_step': Entry(
        'seconds until the first step of a new process ends',
        'terngrad.cli.measure.first_step:COMMAND',
      ),
      'step': Entry(
        'a training step, relative to one without compression',
        'terngrad.cli.measure.step:COMMAND',
      ),
      'variance': Entry(
        'the variance that codes add to gradients',
        'terngrad.cli.measure.variance:COMMAND',
      ),
    },
  ),
}


def load(entry: Entry) -> command.Command:
  """Loads the command of an entry."""
  found = pkgutil.resolve_name(entry.location)
  return found(presets.PRESETS[entry.preset]) if entry.preset else found


def find(path: Sequence[str]) -> Entry | CommandGroup:
  """Finds the entry or group at a path.

  Args:
    path: one or more names, such as 'train', 'mnist'.

  Raises:
    KeyError: the path does not exist.
  """
  members = COMMANDS
  for name in path:
    found = members[name]
    members = found.members if isinstance(found, CommandGroup) else {}
  return found


def command_at(path: Sequence[str]) -> command.Command:
  """Loads the command at a path; raises `KeyError` for groups."""
  entry = find(path)
  if isinstance(entry, CommandGroup):
    raise KeyError(path)
  return load(entry)


def run(
  load: Callable[[], command.Command], program: str, words: Sequence[str]
) -> int:
  """Runs a command, or names the extra that its module needs.

  Args:
    load: returns the command.
    program: its name, as the user typed it.
    words: the arguments after the name.

  Returns:
    The exit code.
  """
  try:
    loaded = load()
  except ModuleNotFoundError as error:
    if advice := extras.advice(error, program):
      return command.report_error('error', advice, command.REFUSED)
    raise
  return command.run(loaded, program, words)
