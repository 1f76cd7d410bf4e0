"""Reports what the runs of a sweep need to reach given scores."""

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from terngrad import errors
from terngrad import lazy
from terngrad.cli import command
from terngrad.cli import flags
from terngrad.cli import sweep as sweeps
from terngrad.config import options
from terngrad.config import servers
from terngrad.sweep import definition as definitions

if TYPE_CHECKING:
  from terngrad.config import training
  from terngrad.report.targets import table as table_types

coding = lazy.module('terngrad.measure.planning.coding')
costs = lazy.module('terngrad.report.targets.costs')
machines = lazy.module('terngrad.report.statistics.machines')
methods = lazy.module('terngrad.codec.method')
plot = lazy.module('terngrad.report.targets.plot')
rates = lazy.module('terngrad.measure.planning.rates')
scores = lazy.module('terngrad.report.targets.scores')
sweep = lazy.module('terngrad.report.sweep')
tables = lazy.module('terngrad.measure.tables')
targets = lazy.module('terngrad.report.targets.table')

USAGE = """\
{program}: shows what the runs of a sweep need to reach given scores.

  {program} FOLDER --metric=bits_per_byte --targets=3.2,2.8 \\
      --computing=0.4 --ratios=0.1,1,10 --output=O

FOLDER holds the sweep. For every target and variant: the steps until the first
epoch that reaches it (linear between epochs, mean over the seeds), the
megabytes that a worker sends until then, and its seconds. A second table
compares the scores at the end, seed by seed. Steps and encoded bits are those
of the runs, in results.csv and curves.csv; a sweep writes curves.csv with
--eval_subsets and --epoch_size in [flags]. Megabytes are those of collective
mode, where each node of the runs is a worker: a gather sends what a worker
encodes to each of the others, and a single worker sends nothing.

Seconds are predicted: every node of the runs is a worker on a host of its own,
which computes --computing seconds in a step (or in each local step), and codes
as fast as this machine does. Workers that compute more examples in a step than
those of other variants take longer in proportion. Networks are given as
--bandwidths, or as --ratios: the seconds that 32 bits for each parameter take
on the wire, over --computing. Without --computing there are no seconds, except
those of --measured: its step times the number of steps. --output also gets
targets.csv, last.csv, and targets.png with the scores over megabytes and
seconds.
"""

option = options.option


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportTargetsFlags:
  """The flags of `terngrad report targets`."""

  definition: str = option('', 'sweep.ini, or the folder that holds it.', 'run')
  data_dir: str = option(
    '',
    'Folder of the data set, which says how many classes or tokens the net '
    'has; empty: as many as the catalog says, 257 for texts.',
    'data',
  )
  metric: str = option(
    'accuracy', 'Score: bits_per_byte, loss or accuracy.', 'run'
  )
  targets: tuple[str, ...] = option(
    (), 'Scores to reach, separated by commas; accuracies in [0, 1].', 'run'
  )
  only: tuple[str, ...] = option(
    (),
    'Pattern for the names of the variants; repeat for several.',
    'run',
    repeated=True,
  )
  output: str = option(
    '', 'Folder for tables and plot; empty: only print.', 'run'
  )
  computing: float = option(
    0.0,
    'Seconds that a worker computes in a step without an exchange, in the '
    'variant with the fewest examples per worker; 0: no seconds.',
    'cluster',
  )
  ratios: tuple[str, ...] = option(
    (),
    'Networks by the seconds of float32 gradients on the wire over '
    '--computing, such as 0.1,1,10.',
    'cluster',
  )
  bandwidths: tuple[str, ...] = option(
    (), 'Networks by bandwidth, such as 10Mbit,1Gbit.', 'cluster'
  )
  measured: str = option(
    '',
    'Table of measured steps: a CSV file with the columns variant, network and '
    'seconds (from one exchange to the next).',
    'cluster',
  )
  latency: float = option(
    5e-5, 'Latency between two workers in seconds.', 'cluster'
  )


def act(values: ReportTargetsFlags) -> None:
  """Prints both tables, and writes the files if --output is given."""
  command.at_least(0, values, 'computing', 'latency')
  options.choice('metric', values.metric, scores.SCORES)
  score = scores.SCORES[values.metric]
  wanted = [_number('targets', text) for text in values.targets]
  found = definitions.read(values.definition, only=values.only)
  configs = sweeps.configurations(found)
  _check_collective(configs)
  runs = sweep.read(found.folder / sweeps.TABLE)
  rows = sweep.read_all_curves(found.folder)
  curves = {
    run: points
    for run, points in scores.curves_of(rows, score).items()
    if run[0] in configs
  }
  # A run that failed reaches no target.
  for run in sweep.failed_runs(sweep.read_failures(found.folder), runs):
    if run[0] in configs:
      curves.setdefault(run, [])
  names = dict.fromkeys(name for name, _ in curves)
  if not names:
    raise errors.ConfigError(
      'only: expected a variant with scored epochs or failed runs, received '
      f'{" and ".join(configs)} without. Change --only, or run them first.'
    )
  sent = runs.groupby('variant')['bits_per_element'].mean()
  work = costs.work_of({name: configs[name].worker_examples for name in names})
  measured = costs.read_measured(values.measured) if values.measured else {}
  variants = {
    name: _costs(
      configs[name],
      float(sent.get(name, math.nan)),
      work[name],
      {head: steps.get(name, math.nan) for head, steps in measured.items()},
      values,
    )
    for name in names
  }
  reached = targets.until(curves, variants, wanted, score)
  last = targets.at_the_end(curves, found.baselines, score)
  for table in (reached, last):
    text = table.to_string(index=False, float_format='{:.4g}'.format)
    command.say(f'{text}\n')
  if note := machines.note(runs[runs['variant'].isin(names)]):
    command.say(f'{note}\n')
  if values.output:
    chart = plot.chart(curves, variants, score)
    tables.write(values.output, 'targets', reached, chart)
    tables.write(values.output, 'last', last)


def _check_collective(configs: 'Mapping[str, training.TrainConfig]') -> None:
  """Refuses runs with servers: their flags do not give the workers' number."""
  for name, config in configs.items():
    if isinstance(config, servers.ServerConfig):
      raise errors.ConfigError(
        f'definition: expected runs in collective mode, received {name} with '
        'parameter servers (launch = --num_ps in sweep.ini). Choose a sweep '
        'without servers.'
      )


def _costs(
  config: 'training.TrainConfig',
  bits: float,
  work: float,
  measured: dict[str, float],
  values: ReportTargetsFlags,
) -> 'table_types.Variant':
  """Returns what a step of a variant costs.

  Args:
    config: configuration of its runs.
    bits: bits per element that a worker encoded in a step.
    work: factor on --computing.
    measured: its measured seconds of a step, by heading.
    values: the flags.
  """
  shapes = costs.shapes_of(config.data, config.model.net, values.data_dir)
  workers = config.num_workers
  elements = sum(methods.sizes_of(shapes))
  codec = config.codes.text(workers)
  seconds = {}
  if networks := _networks(values, elements):
    cost = coding.measure(codec)
    for heading, bandwidth in networks.items():
      setting = costs.Setting(
        work * values.computing, bandwidth, values.latency, workers
      )
      seconds[heading] = costs.seconds_of_step(
        config.devices, codec, shapes, setting, cost
      )
  megabytes = costs.megabytes_of_step(
    config.devices, codec, shapes, workers, bits
  )
  return targets.Variant(megabytes, seconds | measured)


def _networks(values: ReportTargetsFlags, elements: int) -> dict[str, float]:
  """Returns bits per second by the heading of the seconds."""
  given = values.ratios or values.bandwidths
  if bool(given) != bool(values.computing):
    raise flags.UsageError(
      '--computing: expected seconds, and networks (--ratios=0.1,1,10 or '
      f'--bandwidths=10Mbit,1Gbit), received {values.computing:g} and '
      f'{",".join(given) or "no network"}. Give both, or neither.'
    )
  found = {}
  for text in values.ratios:
    ratio = _number('ratios', text)
    bandwidth = costs.bandwidth_of(ratio, elements, values.computing)
    name = rates.describe(bandwidth)
    found[f'seconds, wire / computing {ratio:g} ({name})'] = bandwidth
  for text in values.bandwidths:
    bandwidth = rates.parse('bandwidths', text)
    found[f'seconds, {rates.describe(bandwidth)}'] = bandwidth
  return found


def _number(flag: str, text: str) -> float:
  try:
    number = float(text)
  except ValueError:
    number = math.nan
  if not 0 < number < math.inf:
    raise flags.UsageError(
      f'--{flag}: expected numbers above 0, separated by commas, received '
      f'{text!r}. Write for example --{flag}=0.5,2.'
    )
  return number


COMMAND = command.Command(
  USAGE,
  ReportTargetsFlags,
  act,
  words=('definition',),
  required=('definition', 'targets'),
)
