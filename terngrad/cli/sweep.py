"""The command that runs and reports an experiment of many runs."""

import dataclasses
import multiprocessing
import os
import pathlib
import signal
from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
from multiprocessing import connection
from typing import TYPE_CHECKING
from typing import Any

import tqdm

from terngrad import errors
from terngrad import lazy
from terngrad.cli import children
from terngrad.cli import command
from terngrad.cli import commands
from terngrad.cli import flags
from terngrad.cli import launch
from terngrad.config import options
from terngrad.report.statistics import sweep_rules
from terngrad.sweep import definition as definitions

if TYPE_CHECKING:
  import pandas as pd

  from terngrad.config import training
  from terngrad.sweep import runs as run_types

coding = lazy.module('terngrad.measure.planning.coding')
costs = lazy.module('terngrad.report.targets.costs')
report = lazy.module('terngrad.report.sweep')
sweep_page = lazy.module('terngrad.report.sweep_page')
runs = lazy.module('terngrad.sweep.runs')

USAGE = """\
{program}: runs an experiment of many runs, and compares them.

  {program} experiments/lenet_codecs --data_dir=D --work_dir=W
  {program} experiments/lenet_codecs --data_dir=D --work_dir=W --steps=500 \\
      --seeds=1,2 --only='ternary*' --jobs=2 -- --batch_size=128

The file sweep.ini defines the variants, the seeds and the flags of all runs;
see terngrad/sweep/definition.py. The same command continues an experiment: it
skips finished runs, continues stopped runs and repeats failed runs. A finished
run adds a row to results.csv, with flags, commit, versions and machine. At the
end, or with --report, the command writes sweep.csv, sweep.md, sweep.png and
sweep.html: means, spreads, paired differences by seed, plots. With
--eval_subsets=test in [flags] there are curves over steps too, and curves.csv.
A run that fails, for example because it diverges, adds a row to failures.csv;
the report counts these rows. If a trainer refuses its flags or its data before
the first step, the sweep stops with that run's error. The files are written to
--output. Its default is the folder of sweep.ini, or --work_dir if the command
line changes steps, seeds, variants or flags. Words after `--` are flags of
every training run. To start faster, runs share the functions that XLA compiled,
and a process that has imported TensorFlow.
"""

option = options.option
TABLE = 'results.csv'


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepFlags:
  """The flags of `terngrad sweep`; `more` holds flags of the trainer."""

  definition: str = option('', 'sweep.ini, or the folder that holds it.', 'run')
  data_dir: str = option('', 'Folder of the data set.', 'data')
  work_dir: str = option('', 'Folder for the runs.', 'run')
  output: str = option('', 'Folder for the tables, plots and page.', 'run')
  steps: int = option(0, "Steps per run, instead of the file's.", 'run')
  seeds: tuple[str, ...] = option((), "Seeds, instead of the file's.", 'run')
  only: tuple[str, ...] = option(
    (),
    'Pattern for the names of the variants to run; repeat for several.',
    'run',
    repeated=True,
  )
  jobs: int = option(1, 'Number of runs at the same time.', 'run')
  report: bool = option(False, 'Only report the finished runs.', 'run')
  level: float = option(95.0, "Level of the report's intervals in %.", 'run')
  bandwidth: float = option(
    0.0,
    'Bandwidth of each worker in bits per second, for a network on which the '
    'report models the seconds, as `terngrad plan` does; 0: no model.',
    'cluster',
  )
  latency: float = option(
    5e-5, 'Latency of that network in seconds.', 'cluster'
  )
  computing: float = option(
    0.0,
    'Seconds that a worker computes in a step, or in each local step, without '
    'an exchange, in the variant with the fewest examples per worker.',
    'cluster',
  )
  more: tuple[str, ...] = ()


def act(values: SweepFlags) -> int:
  """Runs the missing runs, then reports; returns the exit code."""
  command.at_least(1, values, 'jobs')
  command.at_least(0, values, 'steps', 'bandwidth', 'computing', 'latency')
  options.in_range('level', values.level, *sweep_rules.LEVELS)
  if bool(values.bandwidth) != bool(values.computing):
    raise flags.UsageError(
      '--computing: expected seconds and --bandwidth, or neither, received '
      f'{values.computing:g} and {values.bandwidth:g}. Give for example '
      '--computing=0.02 --bandwidth=1e8.'
    )
  extra_flags = list(values.more)
  if values.steps:
    extra_flags += [
      f'--max_steps={values.steps}',
      f'--save_iter={values.steps}',
    ]
  seeds = [_seed(text) for text in values.seeds]
  found = definitions.read(values.definition, seeds, values.only, extra_flags)
  configs = configurations(found)
  if values.steps:
    _check_length(configs)
  changed = extra_flags or seeds or values.only
  output = values.output or (values.work_dir if changed else found.folder)
  with errors.explain_write_errors(os.fspath(output)):
    os.makedirs(output, exist_ok=True)
  sweep = runs.Sweep(found, values.data_dir, values.work_dir, output)
  sweep.write()
  if sweep.missing and not values.report:
    stop_request, sender = multiprocessing.Pipe(duplex=False)
    with children.signal_handlers((signal.SIGINT, signal.SIGTERM), sender.send):
      if not _run(sweep, values.jobs, len(found.cells), stop_request):
        command.say('stopped; the same command continues')
        return command.SIGNALLED + stop_request.recv()
  # If all runs failed, there is nothing to compare.
  if values.report or sweep.table.exists():
    _report(sweep.table, found, values, configs)
  for name in sweep.failed:
    command.report_error('failed', name, command.FAILED)
  if sweep.refused:
    name, error = sweep.refused
    return command.report_error(
      'error',
      f'{name} was refused before its first step, so the sweep stopped: the '
      'others would probably be refused as well. The same command continues '
      f'after you correct the cause. The cause: {error}',
      command.REFUSED,
    )
  return command.FAILED if sweep.failed else command.DONE


def _check_length(configs: 'Mapping[str, training.TrainConfig]') -> None:
  """Refuses --steps for runs whose length is given in epochs.

  Raises:
    flags.UsageError: a run has --num_epochs.
  """
  for variant, config in configs.items():
    if count := config.run.num_epochs:
      raise flags.UsageError(
        f'--steps: expected runs without --num_epochs, received {variant} with '
        f'--num_epochs={count}. Add -- --num_epochs=0, or leave --steps out.'
      )


def _run(
  sweep: 'run_types.Sweep',
  jobs: int,
  total: int,
  stop_request: connection.Connection,
) -> bool:
  start = total - len(sweep.missing)
  # disable=None draws the bar on terminals only.
  with tqdm.tqdm(total=total, initial=start, unit='run', disable=None) as bar:

    def show(line: str) -> None:
      with bar.external_write_mode():
        command.say(line)
      bar.update()

    return sweep.run(jobs, show, stop_request)


def _report(
  table: pathlib.Path,
  found: definitions.Definition,
  values: SweepFlags,
  configs: 'Mapping[str, training.TrainConfig]',
) -> None:
  """Prints the table and writes the report."""
  rows, baselines = _read_results(table, found)
  if values.bandwidth:
    steps = rows.groupby('variant')['steps'].last()
    # With several processes, the chief's flags do not give their number.
    examples = {
      variant: config.worker_examples
      for variant, config in configs.items()
      if variant in steps and not found.cells[0].launch
    }
    seconds = {
      variant: steps[variant] * _model_seconds(configs[variant], values, work)
      for variant, work in costs.work_of(examples).items()
    }
    rows['modelled seconds'] = rows['variant'].map(seconds)
  title = found.folder.resolve().name
  rules = sweep_rules.SweepRules(values.level, found.has_searched_rates)
  command.say(report.write(table.parent, title, rows, baselines, rules=rules))


def _read_results(
  table: pathlib.Path, found: definitions.Definition
) -> tuple['pd.DataFrame', dict[str, str]]:
  """Returns the rows of a table, and the baselines that have rows."""
  rows = report.read(table)
  present = {*rows['variant']}
  baselines = {v: b for v, b in found.baselines.items() if b in present}
  return rows, baselines


def render(folder: pathlib.Path, output: pathlib.Path) -> str:
  """Writes table, plot and page of an experiment's finished runs.

  The files are byte-identical to those of `terngrad sweep FOLDER --report`.

  Args:
    folder: directory with sweep.ini and results.csv.
    output: output directory.

  Returns:
    The table and the path of the page, as text.
  """
  found = definitions.read(folder)
  rows, baselines = _read_results(folder / TABLE, found)
  title = folder.resolve().name
  rules = sweep_rules.SweepRules(has_searched_rates=found.has_searched_rates)
  return report.write(output, title, rows, baselines, folder, rules)


def page(folder: pathlib.Path) -> str:
  """Returns the HTML page of `render` without writing the slower plots."""
  found = definitions.read(folder)
  rows, baselines = _read_results(folder / TABLE, found)
  rules = sweep_rules.SweepRules(has_searched_rates=found.has_searched_rates)
  failures = report.read_failures(folder)
  table = report.summary(rows, baselines, failures, rules)
  by_step = report.read_curves(folder, rows)
  title = folder.resolve().name
  return sweep_page.page(title, table, rows, by_step, failures, rules)


def _model_seconds(
  config: 'training.TrainConfig', values: SweepFlags, work: float
) -> float:
  """Predicts the seconds of a step with every worker on a separate machine.

  Args:
    config: configuration of the runs.
    values: the flags.
    work: factor on --computing.
  """
  workers = config.num_workers
  shapes = costs.shapes_of(config.data, config.model.net, values.data_dir)
  codec = config.codes.text(workers)
  cost = coding.measure(codec)
  network = work * values.computing, values.bandwidth, values.latency
  return costs.seconds_of_step(
    config.devices, codec, shapes, costs.Setting(*network, workers), cost
  )


# Flags that the sweep appends to those of the definition. Files of flags for
# single runs have --seed, which it appends too.
_SET_FOR_TRAINING = ('data_dir', 'train_dir')
_SET_FOR_EVAL = ('data_dir', 'checkpoint_dir', 'eval_dir', 'run_once')


def configurations(
  found: definitions.Definition,
) -> 'dict[str, training.TrainConfig]':
  """Parses the flags of all runs before the first one starts.

  Returns:
    Configurations by variant.
  """
  trainer = _command('train', found.program)
  scorer = _command('eval', found.program)
  for name, words in found.scoring.items():
    label = f'eval {name}'.strip()
    _validated(_parse(scorer, words, label, _SET_FOR_EVAL), label)
  configs: dict[str, training.TrainConfig] = {}
  for cell in found.cells:
    if cell.variant in configs:
      continue
    program, line = trainer, list(cell.flags)
    if cell.launch:
      program, line = _chief(cell, found.program, line)
    config = _parse(program, line, cell.variant, _SET_FOR_TRAINING)
    configs[cell.variant] = _validated(config, cell.variant)
  return configs


def _command(group: str, data_set: str) -> command.Command:
  refusal = errors.ConfigError(
    f'program: expected a data set of `terngrad {group}`, received '
    f'{data_set!r}. Correct it in sweep.ini.'
  )
  # Its flags are those of TF-Slim, which a sweep does not know.
  if data_set == 'slim':
    raise refusal
  try:
    return commands.command_at((group, data_set))
  except KeyError as error:
    raise refusal from error


def _chief(
  cell: definitions.Cell, data_set: str, words: Sequence[str]
) -> tuple[command.Command, list[str]]:
  """Returns (command, arguments) of the chief of a multi-process run."""
  values = _parse(launch.COMMAND, [*cell.launch], cell.variant)
  command_line = 'train', data_set, *words
  *_, task = launch.tasks(dataclasses.replace(values, command=command_line))
  chief = task.words[len(launch.TRAINER) :]
  return _command(*chief[:2]), [*chief[2:]]


def _parse(
  program: command.Command,
  words: Sequence[str],
  name: str,
  own: Collection[str] = (),
) -> Any:
  """Parses flags, of which the sweep sets some of its `own` accord."""
  try:
    parsed = flags.parse(program.options, program.defaults, words)
  except flags.UsageError as error:
    raise errors.ConfigError(f'{name}: {error}') from error
  if twice := sorted(parsed.given.intersection(own)):
    raise errors.ConfigError(
      f'{name}: expected no --{twice[0]}, which the sweep sets for each run, '
      'received one. Remove it from the definition.'
    )
  return parsed.values


def _validated(config: Any, name: str) -> Any:
  try:
    config.validate()
  except errors.ConfigError as error:
    raise errors.ConfigError(f'{name}: {error}') from error
  return config


def _seed(text: str) -> int:
  try:
    return int(text)
  except ValueError as error:
    raise flags.UsageError(
      f'--seeds: expected integers, received {text!r}. Write for example '
      '--seeds=1,2.'
    ) from error


COMMAND = command.Command(
  USAGE,
  SweepFlags,
  act,
  words=('definition',),
  required=('definition', 'data_dir', 'work_dir'),
  rest='more',
)
