"""Writes a page about a run: curves, and predictions for test images."""

import dataclasses
import os
from typing import TYPE_CHECKING

from terngrad import lazy
from terngrad.cli import command
from terngrad.cli import flags
from terngrad.config import options

if TYPE_CHECKING:
  from terngrad.checkpoint import trained as trained_types
  from terngrad.report import run_page as page_types

checkpoints = lazy.module('terngrad.checkpoint.checkpoints')
datasets = lazy.module('slim.datasets.factory')
predicted_images = lazy.module('terngrad.report.predicted_images')
records = lazy.module('terngrad.training.records')
run_folder = lazy.module('terngrad.checkpoint.folder')
run_page = lazy.module('terngrad.report.run_page')
trained = lazy.module('terngrad.checkpoint.trained')

USAGE = """\
{program}: makes a page about a run, one HTML file that needs no other file.

  {program} --train_dir=T --eval_dir=E --output=run.html \\
      --dataset_name=cifar10 --data_dir=D --subset=test

Loss, accuracy, zeros, bits and images/s come from the records in T and E; T is
the run's --train_dir, or the folder that holds it as `train`. With --data_dir
there are images too, with predictions by the newest checkpoint in T.
"""

option = options.option


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportPageFlags:
  """The flags of `terngrad report page`."""

  train_dir: str = option('', 'Folder of the training run.', 'run')
  eval_dir: str = option(
    '', 'Folder of its evaluation; empty: no scores.', 'run'
  )
  output: str = option('run.html', 'File to write.', 'run')
  dataset_name: str = option('imagenet', 'Data set of the training.', 'data')
  data_dir: str = option(
    '', 'Folder of the data set; empty: no images.', 'data'
  )
  subset: str = option('validation', 'Split to take images from.', 'data')
  num_images: int = option(32, 'Images to show.', 'data')
  labels_offset: int = option(0, 'As in training.', 'data')
  image_size: int = option(
    0, 'Height and width of the input; 0: the default of the net.', 'data'
  )
  preprocessing: str = option('', 'As in training.', 'data')
  tower: int = option(
    -1,
    "Read the parameters of this node's device; -1: of the first one stored.",
    'devices',
  )
  device: str = option('/gpu:0', 'Device to run on.', 'devices')
  restore_avg_var: bool = option(
    True, 'Read the moving averages of the parameters.', 'model'
  )


def act(values: ReportPageFlags) -> None:
  """Writes the page."""
  train_dir = run_folder.find_run(values.train_dir, 'train_dir')
  values = dataclasses.replace(values, train_dir=train_dir)
  losses = records.read(values.train_dir)
  if not losses:
    raise flags.UsageError(
      f'--train_dir: expected a folder with {records.FILE_NAME}, received '
      f'{values.train_dir!r}. Give the --train_dir of a run that has started.'
    )
  if values.num_images < 1:
    raise flags.UsageError(
      f'--num_images: expected 1 or more, received {values.num_images}. Leave '
      '--data_dir out for a page without images.'
    )
  scores = records.read(values.eval_dir) if values.eval_dir else []
  if values.eval_dir and not scores:
    raise flags.UsageError(
      f'--eval_dir: expected a folder with {records.FILE_NAME}, received '
      f'{values.eval_dir!r}. Give the --eval_dir of an evaluation, or leave it '
      'out for a page without scores.'
    )
  folder = os.path.abspath(values.train_dir)
  facts = {'folder': folder}
  examples: list[page_types.Prediction] = []
  newest = checkpoints.newest(values.train_dir)
  if newest:
    facts |= run_page.facts_of_run(checkpoints.read_layout(newest))
  if values.data_dir:
    net, examples = _predict(values)
    facts['net'] = f'{net.layout.net}, {net.image_size} pixels'
    facts['images'] = (
      f'{values.subset} of {values.dataset_name}, step {net.step}'
    )
  facts |= run_page.last_values(losses, scores)
  # The directory of a run is usually named train: add its parent's name.
  parent, name = os.path.split(folder)
  title = os.path.join(os.path.basename(parent), name)
  text = run_page.page(title, facts, losses, scores, examples)
  try:
    with open(values.output, 'w', encoding='utf-8') as file:
      file.write(text)
  except OSError as error:
    raise flags.UsageError(
      f'--output: expected a file that can be written, received '
      f'{values.output} ({error.strerror}). Choose another --output.'
    ) from error
  command.say(f'Wrote {values.output}.')


def _predict(
  values: ReportPageFlags,
) -> 'tuple[trained_types.Trained, list[page_types.Prediction]]':
  return predicted_images.predict(
    trained.LoadOptions(
      checkpoint_dir=values.train_dir,
      image_size=values.image_size,
      tower=values.tower,
      device=values.device,
      restore_avg_var=values.restore_avg_var,
    ),
    values.dataset_name,
    values.data_dir,
    values.subset,
    datasets.ReadOptions(
      image_size=values.image_size,
      batch_size=values.num_images,
      training=False,
      preprocessing=values.preprocessing,
      labels_offset=values.labels_offset,
    ),
  )


COMMAND = command.Command(USAGE, ReportPageFlags, act)
