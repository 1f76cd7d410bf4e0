"""Writes a page about runs: curves, and predictions for test images."""

import dataclasses
import os
from typing import TYPE_CHECKING

from terngrad import lazy
from terngrad.cli import command
from terngrad.cli import flags
from terngrad.config import options

if TYPE_CHECKING:
  from terngrad.checkpoint import trained as trained_types
  from terngrad.report import run_facts as fact_types
  from terngrad.report import run_page as page_types

checkpoints = lazy.module('terngrad.checkpoint.checkpoints')
comparison = lazy.module('terngrad.report.comparison')
disk = lazy.module('slim.datasets.records.disk')
datasets = lazy.module('slim.datasets.factory')
predicted_images = lazy.module('terngrad.report.predicted_images')
records = lazy.module('terngrad.training.records')
run_folder = lazy.module('terngrad.checkpoint.folder')
run_facts = lazy.module('terngrad.report.run_facts')
run_page = lazy.module('terngrad.report.run_page')
trained = lazy.module('terngrad.checkpoint.trained')

USAGE = """\
{program}: makes a page about runs, one HTML file that needs no other file.

  {program} --train_dir=T --eval_dir=E --output=run.html \\
      --data_dir=D --subset=test
  {program} --runs=float32=DIR1,ternary=DIR2 --output=runs.html

Loss, accuracy, zeros, bits and examples/s are in the records in T and E; T is
the run's --train_dir, or the folder that holds it as `train`. With --data_dir
there are images too, with predictions by the newest checkpoint in T. --runs
compares runs in one page, with the folders that `terngrad report compare`
takes. In a browser the page shows values under the pointer, hides curves and
smooths them; it loads nothing, and is complete without scripts.
"""

option = options.option


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportPageFlags:
  """The flags of `terngrad report page`."""

  train_dir: str = option('', 'Folder of the training run.', 'run')
  eval_dir: str = option(
    '', 'Folder of its evaluation; empty: no scores.', 'run'
  )
  runs: tuple[str, ...] = option(
    (),
    'NAME=FOLDER of runs to compare, instead of --train_dir, separated by '
    'commas; FOLDER is a --train_dir, or holds train and eval.',
    'run',
  )
  output: str = option('run.html', 'File to write.', 'run')
  dataset_name: str = option(
    '', 'Data set of the training; empty: as the checkpoint says.', 'data'
  )
  data_dir: str = option(
    '', 'Folder of the data set; empty: no images.', 'data'
  )
  subset: str = option('validation', 'Split to take images from.', 'data')
  num_images: int = option(32, 'Images to show.', 'data')
  labels_offset: int = option(
    0, 'Number subtracted from all labels; 0: as in training.', 'data'
  )
  image_size: int = option(
    0, 'Height and width of the input; 0: as in training.', 'data'
  )
  preprocessing: str = option(
    '', 'Name of the preprocessing; empty: as in training.', 'data'
  )
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
  if values.runs:
    title, runs = 'Runs', _compared(values)
    examples: list[page_types.Prediction] = []
  else:
    title, run, examples = _single(values)
    runs = {title: run}
  text = run_page.page(title, runs, examples)
  try:
    disk.write_text(values.output, text)
  except OSError as error:
    raise flags.UsageError(
      f'--output: expected a file that can be written, received '
      f'{values.output} ({error.strerror}). Choose another --output.'
    ) from error
  command.say(f'Wrote {values.output}.')


def _compared(
  values: ReportPageFlags,
) -> 'dict[str, fact_types.ReportedRun]':
  """Reads the runs of --runs, by name."""
  for name in ('train_dir', 'eval_dir', 'data_dir'):
    if received := getattr(values, name):
      raise flags.UsageError(
        f'--{name}: expected none beside --runs, received {received!r}. Leave '
        'one of the two out.'
      )
  folders = command.named_paths(
    'runs', values.runs, 'FOLDER', 'ternary=runs/ternary'
  )
  return {name: _run(folder) for name, folder in folders.items()}


def _run(folder: str) -> 'fact_types.ReportedRun':
  found = comparison.find(folder)
  newest = checkpoints.newest(found.train_dir)
  layout = checkpoints.read_layout(newest) if newest else None
  facts = {'folder': os.path.abspath(found.train_dir)}
  return run_facts.report(found.losses, found.scores, layout, facts)


def _single(
  values: ReportPageFlags,
) -> 'tuple[str, fact_types.ReportedRun, list[page_types.Prediction]]':
  """Returns (title, run, predictions) of --train_dir."""
  command.at_least(0, values, 'labels_offset')
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
  if values.data_dir:
    data_set = values.dataset_name or trained.data_set(train_dir)
    net, examples = _predict(values, data_set)
    facts['net'] = f'{net.layout.net}, {net.image_size} pixels'
    facts['images'] = f'{values.subset} of {data_set}, step {net.step}'
  layout = checkpoints.read_layout(newest) if newest else None
  # The directory of a run is usually named train: add its parent's name.
  parent, name = os.path.split(folder)
  title = os.path.join(os.path.basename(parent), name)
  return title, run_facts.report(losses, scores, layout, facts), examples


def _predict(
  values: ReportPageFlags, data_set: str
) -> 'tuple[trained_types.Trained, list[page_types.Prediction]]':
  return predicted_images.predict(
    trained.LoadOptions(
      checkpoint_dir=values.train_dir,
      image_size=values.image_size,
      tower=values.tower,
      device=values.device,
      restore_avg_var=values.restore_avg_var,
    ),
    data_set,
    values.data_dir,
    values.subset,
    datasets.ReadOptions(
      image_size=values.image_size,
      batch_size=values.num_images,
      training=False,
      preprocessing=values.preprocessing,
      labels_offset=values.labels_offset,
      limit=values.num_images,
    ),
  )


COMMAND = command.Command(USAGE, ReportPageFlags, act, packages=('jinja2',))
