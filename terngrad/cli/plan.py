"""The command that plans a run: the fastest codec for a network."""

import dataclasses
import os
import platform
from collections.abc import Sequence
from typing import TYPE_CHECKING

from terngrad import errors
from terngrad import lazy
from terngrad.cli import command
from terngrad.config import options
from terngrad.measure.planning import rates
from terngrad.recipes import catalog
from terngrad.recipes import recipe as recipes

if TYPE_CHECKING:
  from terngrad.measure.planning import computing as computing_types
  from terngrad.measure.planning import parameters as parameter_types

answer = lazy.module('terngrad.measure.planning.answer')
chart = lazy.module('terngrad.measure.planning.chart')
computing = lazy.module('terngrad.measure.planning.computing')
costs = lazy.module('terngrad.measure.planning.costs')
exchanges = lazy.module('terngrad.measure.processes.exchanges')
model = lazy.module('terngrad.measure.planning.model')
parameters_lib = lazy.module('terngrad.measure.planning.parameters')
ranking = lazy.module('terngrad.measure.planning.ranking')
saved_model = lazy.module('terngrad.measure.planning.saved_model')
tables = lazy.module('terngrad.measure.tables')

USAGE = """\
{program}: finds the gradient code with the fastest step on a network.

Your own Keras model, saved by model.save('net.keras'), on four machines with
100 Mbit/s:

  {program} --model=net.keras --batch_size=64 --bandwidth=100Mbit --workers=4

A net of this project, or a number of parameters, with the seconds that one
worker computes in a step, as training on one machine shows them:

  {program} --net=alexnet --seconds=0.25 --bandwidth=1Gbit --workers=4
  {program} --elements=25.6e6 --seconds=0.4 --bandwidth=100Mbit --workers=8 \\
      --codecs=ternary --codecs=error_feedback+stc --output=plans

The last line of the output names the code to take. Above it is a table with the
seconds of a step and of its parts, the fastest code first; '=' marks the codes
that are as fast as the first within noise. It also has the speed-up over
float32, fp16 and PowerSGD; the bandwidth below which the code is faster than
float32; and the accuracy that it gained or lost beside float32 in experiments
of this project.

With --local_steps=H, workers exchange after every H steps, and seconds are
those of one step with its share of the exchange; --overlap=1 is an exchange
that is applied H steps later. The last but one line names the H with which
workers wait less than a tenth of the time. --examples adds the hours until all
workers have trained with so many examples, which does not say how well: workers
that exchange seldom need more examples.

  {program} --net=alexnet --seconds=0.25 --bandwidth=10Mbit --workers=4 \\
      --local_steps=30 --examples=1e6

--recipe=NAME sets the local steps and the code of a published recipe, which the
first line lists. The plan compares this code with float32 and with the --codecs
that you give. The last but one line is about the recipe's code:

  {program} --net=alexnet --seconds=0.25 --bandwidth=10Mbit --workers=4 \\
      --recipe=sparseloco

Encoding and decoding are timed here, which takes up to a minute. The times are
stored in ~/.cache/terngrad (or $XDG_CACHE_HOME/terngrad) for the next plan on
this machine. Bytes are counted as the exchanges count them, with the moving
statistics of a --net (not of --elements); every hop takes --latency. --output
writes the table, a plot over bandwidth and workers, and all parameters as
parameters.json, which --parameters reads.

To fit computing, overlap, efficiency and the speed of coding to steps that
`terngrad measure exchange --real` measured, and to see the plan's errors:

  {program} --net=alexnet --fitted_to=slow/exchange.csv@100Mbit \\
      --fitted_to=fast/exchange.csv@1Gbit --bandwidth=10Mbit --output=plans
  {program} --net=alexnet --parameters=plans/parameters.json \\
      --bandwidth=10Mbit --beside=slowest/exchange.csv@10Mbit
"""

option = options.option


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlanFlags:
  """The flags of `terngrad plan`."""

  model: str = option(
    '',
    'Keras file (model.save) whose variables are coded; a step is timed with '
    'random examples. Code in the file is refused.',
    'model',
  )
  batch_size: int = option(
    32, 'With --model or --examples: examples of a worker in a step.', 'model'
  )
  net: str = option(
    '', 'Instead of --model: net whose variables are coded.', 'model'
  )
  elements: float = option(
    0.0,
    'Instead of --model: number of parameters, as a matrix of 1,024 rows and a '
    'vector of the rest.',
    'model',
  )
  seconds: float = option(
    0.0,
    'Seconds that one worker computes in a step; with --model they replace the '
    'timed ones.',
    'run',
  )
  bandwidth: str = option(
    '1Gbit',
    'Bandwidth of a worker: bits per second, or with a unit, as 100Mbit, '
    '2.5Gbit/s, 25GB/s.',
    'cluster',
  )
  latency: float = option(
    5e-5, 'Latency between two workers in seconds.', 'cluster'
  )
  workers: int = option(
    2, 'Number of workers, each on a separate machine.', 'cluster'
  )
  overlap: float = option(
    0.0,
    'Share of the computing time of a step that overlaps with messages, 0 to '
    '1: some 0.6 with --bytes_per_bucket. With --local_steps, 1 overlaps with '
    'all steps between two exchanges.',
    'cluster',
  )
  local_steps: int = option(
    1, 'Steps of a worker from one exchange to the next.', 'run'
  )
  recipe: str = option(
    '',
    f'A published recipe of local steps: {", ".join(catalog.RECIPES)}. It sets '
    '--local_steps, unless the command line sets it, and its code replaces the '
    'default --codecs, or precedes those of the command line '
    '(docs/local_steps.md).',
    'run',
  )
  examples: float = option(
    0.0, 'Print the hours until all workers took so many examples.', 'run'
  )
  efficiency: float = option(
    1.0,
    'Share of the bandwidth that carries payload: 0.95 for TCP over Ethernet.',
    'cluster',
  )
  parameters: str = option(
    '',
    'parameters.json of an earlier plan. It replaces --seconds, --latency, '
    '--overlap and --efficiency, and its codes are not timed again.',
    'run',
  )
  fitted_to: tuple[str, ...] = option(
    (),
    'Table of `terngrad measure exchange` to fit the plan to, and its '
    'bandwidth, as FILE.csv@1Gbit; repeat for several.',
    'run',
    repeated=True,
  )
  beside: tuple[str, ...] = option(
    (),
    'The same for a table that is only compared with the plan.',
    'run',
    repeated=True,
  )
  codecs: tuple[str, ...] = option(
    (
      'fp16',
      'ternary',
      'eden:bits=2',
      'minmax:bits=4',
      'thc',
      'error_feedback+signsgd',
      'error_feedback+topk',
      'error_feedback+stc',
      'error_feedback+powersgd:rank=1',
      'error_feedback+powersgd:rank=4',
    ),
    "Codes, as the trainers' --codec spells them; repeat for several.",
    'codes',
    repeated=True,
  )
  rounds: int = option(
    25, 'Rounds in which codes take turns; steps of --model.', 'run'
  )
  max_seconds: float = option(
    40.0, 'No further round begins after this time, except the first 3.', 'run'
  )
  refresh: bool = option(
    False, 'Time all codes again, and replace the stored times.', 'run'
  )
  no_cache: bool = option(
    False, 'Neither read nor store times of codes.', 'run'
  )
  output: str = option('', 'Folder for plan.csv and plan.png.', 'run')


def act(values: PlanFlags) -> None:
  """Prints the table, and writes it if --output names a directory."""
  _check(values)
  recipe = _describe_recipe(values)
  bandwidth = rates.parse('bandwidth', values.bandwidth)
  subject = _subject(values)
  shapes = subject.shapes
  fitted = _read_steps(values.fitted_to, shapes)
  others = _read_steps(values.beside, shapes)
  texts = [one.text for one in (*fitted, *others)]
  parameters = _parameters(values, subject.seconds, texts)
  parameters = parameters._replace(statistics=subject.statistics)
  if fitted:
    parameters = parameters_lib.fit(parameters, fitted, shapes)._replace(
      source=f'{parameters.source}; fitted to {", ".join(values.fitted_to)}'
    )
    command.say(
      f'fitted: {parameters.computing:.4g} s of computing, overlap '
      f'{parameters.overlap:.2f}, efficiency {parameters.efficiency:.3f}, '
      f'coding {parameters.coding:.2f} times the timed seconds'
    )
  for name, steps in (('fitted to', fitted), ('beside', others)):
    if steps:
      command.say(f'{name}:')
      command.say(answer.describe_errors(parameters, steps, shapes))
  arguments = (
    values.codecs,
    shapes,
    parameters.computing,
    parameters.network(bandwidth, values.workers),
    parameters.costs,
    parameters.overlap,
    subject.row_bytes,
    values.local_steps,
    subject.statistics,
  )
  table = model.table(*arguments)
  if values.examples:
    table = answer.add_hours(
      table, values.examples, values.workers * values.batch_size
    )
  shown = ranking.with_accuracy(table)
  command.say(
    f'{rates.describe(bandwidth)}, {values.workers} workers, '
    f'{parameters.computing:.4g} s of computing in a step:'
  )
  command.say(answer.describe_table(shown, values.local_steps))
  try:
    if values.output:
      path = tables.write(values.output, 'plan', shown, chart.draw(*arguments))
      parameters_path = parameters_lib.default_path(values.output)
      parameters_lib.write(parameters_path, parameters)
      command.say(f'plot: {path}; parameters: {parameters_path}')
  finally:  # The answer does not depend on files.
    text = recipe.codec if recipe else ranking.recommend(table)
    if waits := answer.describe_waiting(table, text):
      command.say(waits)
    command.say(ranking.describe(table))


def _describe_recipe(values: PlanFlags) -> recipes.Recipe | None:
  """Prints what --recipe consists of, and returns it; None without one.

  Raises:
    errors.ConfigError: the recipe is unknown, or not for so many workers.
  """
  if not values.recipe:
    return None
  with errors.as_config_error():
    found = catalog.find(values.recipe)
    found.check_workers(values.workers)
  planned = {'every': values.local_steps, 'codec': found.codec}
  command.say(found.describe(planned))
  return found


def _subject(values: PlanFlags) -> 'computing_types.MeasuredModel':
  """Returns what --model, --net or --elements describes."""
  if values.model:
    timing = values.batch_size, values.rounds, values.max_seconds
    found = saved_model.measure(values.model, *timing, command.say)
    return found._replace(seconds=values.seconds or found.seconds)
  if values.net:
    # The nets of `measure exchange`, whose steps are compared.
    options.choice('net', values.net, exchanges.NETS)
    net = exchanges.subject(values.net, real=False)
    return computing.MeasuredModel(
      net.shapes, values.seconds, statistics=net.statistics
    )
  columns, rest = divmod(max(1, round(values.elements)), 1024)
  shapes = [(1024, columns)] * bool(columns) + [(rest,)] * bool(rest)
  return computing.MeasuredModel(shapes, values.seconds)


def _read_steps(
  texts: Sequence[str], shapes: Sequence[Sequence[int]]
) -> 'list[parameter_types.MeasuredSeconds]':
  """Returns the measured steps in some files; logs the cases it excludes."""
  found: list[parameter_types.MeasuredSeconds] = []
  for text in texts:
    steps, excluded = parameters_lib.read_measured(text, shapes)
    found += steps
    if excluded:
      command.say(f'left out of {text}: {", ".join(excluded)}')
  return found


def _parameters(
  values: PlanFlags, seconds: float, more: Sequence[str]
) -> 'parameter_types.Parameters':
  """Returns parameters with the costs of --codecs and of further codecs."""
  if values.parameters:
    parameters = parameters_lib.read(values.parameters)
  else:
    parameters = parameters_lib.Parameters(
      f'flags; codes timed on {platform.processor() or platform.machine()}, '
      f'{os.cpu_count()} cores',
      seconds,
      values.overlap,
      values.efficiency,
      values.latency,
      1.0,
      {},
    )
  texts = [
    text
    for text in dict.fromkeys([model.FLOAT32, *values.codecs, *more])
    if text not in parameters.codes
  ]
  timing = costs.TimingOptions(
    values.rounds,
    values.max_seconds,
    reads=not (values.no_cache or values.refresh),
    writes=not values.no_cache,
  )
  with errors.as_config_error():
    timed = costs.find(texts, timing, command.say) if texts else {}
  return parameters._replace(codes=parameters.codes | timed)


def _check(values: PlanFlags) -> None:
  given = [n for n in ('model', 'net', 'elements') if getattr(values, n)]
  if len(given) != 1:
    raise errors.ConfigError(
      'net: expected one of --model, --net and --elements, received '
      f'{" and ".join(f"--{n}" for n in given) or "none"}. Give '
      '--model=net.keras, --net=alexnet or --elements=61e6.'
    )
  command.at_least(0, values, 'elements', 'seconds', 'latency', 'max_seconds')
  command.at_least(0, values, 'examples')
  command.at_least(1, values, 'workers', 'rounds', 'batch_size', 'local_steps')
  options.in_range('overlap', values.overlap, 0, 1)
  options.in_range('efficiency', values.efficiency, 0.01, 1)
  known = (values.model, values.seconds, values.parameters, values.fitted_to)
  if not any(known):
    raise errors.ConfigError(
      'seconds: expected the seconds of a step of one worker without exchange, '
      'received 0. Train a few steps on one machine and take sec/batch from '
      'the log, or give your model by --model.'
    )


COMMAND = command.Command(USAGE, PlanFlags, act, packages=('pandas', 'tqdm'))
