"""Converts TensorBoard's events to JSON, CSV and PNG."""

import dataclasses
import pathlib

from terngrad import errors
from terngrad import lazy
from terngrad.cli import command
from terngrad.cli import flags
from terngrad.config import options

event_files = lazy.module('terngrad.report.event_files')
serialize = lazy.module('terngrad.report.serialize')

USAGE = """\
{program}: writes scalars, histograms, images and graphs of event files.

  {program} --logdir=L --target=T

Every folder below L with event files is a run. T/runs.json lists the files of
every run and tag.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportTensorboardFlags:
  """The flags of the program of 2017."""

  logdir: str = options.option('', 'Folder of the event files.', 'data')
  target: str = options.option('', 'Folder to write.', 'run')
  overwrite: bool = options.option(
    False, 'Replace the target if it exists.', 'run'
  )
  purge_orphaned_data: bool = options.option(
    True,
    'Discard events of steps that a run repeated after a restart.',
    'data',
  )


def act(values: ReportTensorboardFlags) -> None:
  """Writes the files."""
  for name in ('logdir', 'target'):
    if not getattr(values, name):
      raise flags.UsageError(
        f'--{name}: expected a folder, received none. Give --{name}=FOLDER.'
      )
  target = pathlib.Path(values.target)
  if target.exists() and not values.overwrite:
    raise flags.UsageError(
      f'--target: expected a folder that does not exist, received {target}. '
      'Choose another, or give --overwrite.'
    )
  if target.exists() and not (target / 'runs.json').is_file():
    raise flags.UsageError(
      f'--overwrite: expected a --target that this program wrote, received '
      f'{target}, which has no runs.json. Remove it yourself.'
    )
  runs = event_files.read(values.logdir, values.purge_orphaned_data)
  if not runs:
    raise flags.UsageError(
      '--logdir: expected a folder with event files, received '
      f'{values.logdir}. Give the --train_dir of a run, or a folder above it.'
    )
  with errors.explain_write_errors('target'):
    count = serialize.replace(runs, target)
  command.say(f'Wrote {count} files of {len(runs)} runs into {target}.')


COMMAND = command.Command(
  USAGE, ReportTensorboardFlags, act, packages=('tensorboard',)
)
