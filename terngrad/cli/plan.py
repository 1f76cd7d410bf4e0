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

if TYPE_CHECKING:
  from terngrad.measure.planning import parameters as parameter_types

chart = lazy.module('terngrad.measure.planning.chart')
coding = lazy.module('terngrad.measure.planning.coding')
exchanges = lazy.module('terngrad.measure.processes.exchanges')
model = lazy.module('terngrad.measure.planning.model')
parameters_lib = lazy.module('terngrad.measure.planning.parameters')
tables = lazy.module('terngrad.measure.tables')

USAGE = """\
{program}: finds the gradient code with the fastest step on a network.

  {program} --net=alexnet --seconds=0.25 --bandwidth=1e9 --workers=4
  {program} --elements=25.6e6 --seconds=0.4 --bandwidth=1e8 --workers=8 \\
      --codecs=ternary --codecs=error_feedback+stc --output=plans
  {program} --net=alexnet --fitted_to=slow/exchange.csv@1e8 \\
      --fitted_to=fast/exchange.csv@1e9 --bandwidth=1e7 --output=plans
  {program} --net=alexnet --parameters=plans/parameters.json \\
      --bandwidth=1e7 --beside=slowest/exchange.csv@1e7

--seconds is the time of a worker's step without any exchange, as training on
one machine shows it. Encoding and decoding are timed here, on a million
elements; bytes are counted as the exchanges count them; every hop takes
--latency. The table lists the parts of a step for each code, the fastest first,
its speed-up over float32, fp16 and PowerSGD, and the bandwidth below which it
is faster than float32. --output writes the table, a plot over bandwidth and
workers, and all parameters as parameters.json, which --parameters reads.
--fitted_to fits computing, overlap, efficiency and the speed of coding to steps
measured by `terngrad measure exchange --real`. --fitted_to and --beside print
the errors of the plan for such steps.
"""

option = options.option


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlanFlags:
  """The flags of `terngrad plan`."""

  net: str = option('', 'Net whose variables are coded.', 'model')
  elements: float = option(
    0.0,
    'Instead of --net: number of parameters, as a matrix of 1,024 rows.',
    'model',
  )
  seconds: float = option(
    0.0, 'Seconds that one worker computes in a step.', 'run'
  )
  bandwidth: float = option(
    1e9, 'Bandwidth of a worker in bits per second.', 'cluster'
  )
  latency: float = option(
    5e-5, 'Latency between two workers in seconds.', 'cluster'
  )
  workers: int = option(
    2, 'Number of workers, each on a separate machine.', 'cluster'
  )
  overlap: float = option(
    0.0,
    'Share of the computing time that overlaps with messages, 0 to 1: some 0.6 '
    'with --bytes_per_bucket.',
    'cluster',
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
    'Table of `terngrad measure exchange` to fit the plan to, and the bits per '
    'second of its network, as FILE.csv@1e9; repeat for several.',
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
  rounds: int = option(5, 'Rounds in which each code is timed.', 'run')
  output: str = option('', 'Folder for plan.csv and plan.png.', 'run')


def act(values: PlanFlags) -> None:
  """Prints the table, and writes it if --output names a directory."""
  _check(values)
  if values.net:
    # The nets of `measure exchange`, whose steps are compared.
    options.choice('net', values.net, exchanges.NETS)
    shapes = exchanges.subject(values.net, real=False).shapes
  else:
    shapes = [(1024, max(1, round(values.elements / 1024)))]
  fitted = _read_steps(values.fitted_to, shapes)
  others = _read_steps(values.beside, shapes)
  measured = [*fitted, *others]
  parameters = _parameters(values, [one.text for one in measured])
  if fitted:
    parameters = parameters_lib.fit(parameters, fitted, shapes)._replace(
      source=f'{parameters.source}; fitted to {", ".join(values.fitted_to)}'
    )
    command.say(
      f'fitted: {parameters.computing:.4g} s of computing, overlap '
      f'{parameters.overlap:.2f}, efficiency {parameters.efficiency:.3f}, '
      f'coding {parameters.coding:.2f} times the timed seconds'
    )
  _report_errors('fitted to', parameters, fitted, shapes)
  _report_errors('beside', parameters, others, shapes)
  network = parameters.network(values.bandwidth, values.workers)
  arguments = (
    values.codecs,
    shapes,
    parameters.computing,
    network,
    parameters.costs,
    parameters.overlap,
  )
  table = model.table(*arguments)
  command.say(table.to_string(index=False, float_format='{:.4g}'.format))
  best = table.iloc[0]
  command.say(
    f'fastest: {best["codec"]}, {best["step"]:.3g} s per step, '
    f'{best["over float32"]:.2f} times as fast as float32'
  )
  if values.output:
    path = tables.write(values.output, 'plan', table, chart.draw(*arguments))
    parameters_path = parameters_lib.default_path(values.output)
    parameters_lib.write(parameters_path, parameters)
    command.say(f'plot: {path}; parameters: {parameters_path}')


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
  values: PlanFlags, more: Sequence[str]
) -> 'parameter_types.Parameters':
  """Returns parameters with the costs of --codecs and of further codecs."""
  if values.parameters:
    parameters = parameters_lib.read(values.parameters)
  else:
    parameters = parameters_lib.Parameters(
      f'--seconds and other flags; codes timed in {values.rounds} rounds on '
      f'{platform.processor() or platform.machine()}, {os.cpu_count()} cores',
      values.seconds,
      values.overlap,
      values.efficiency,
      values.latency,
      1.0,
      {},
    )
  with errors.as_config_error():
    timed = {
      text: coding.measure(text, values.rounds)
      for text in dict.fromkeys([model.FLOAT32, *values.codecs, *more])
      if text not in parameters.codes
    }
  return parameters._replace(codes=parameters.codes | timed)


def _report_errors(
  name: str,
  parameters: 'parameter_types.Parameters',
  measured: 'Sequence[parameter_types.MeasuredSeconds]',
  shapes: Sequence[Sequence[int]],
) -> None:
  if not measured:
    return
  table = parameters_lib.compare(parameters, measured, shapes)
  command.say(f'{name}:')
  command.say(table.to_string(index=False, float_format='{:.4g}'.format))
  magnitudes = table['error'].abs()
  worst = table.loc[magnitudes.idxmax()]
  command.say(
    f'median error {magnitudes.median():.1%}; the worst '
    f'{worst["error"]:+.1%}, of {worst["codec"]} at {worst["Mbit/s"]:g} Mbit/s'
  )


def _check(values: PlanFlags) -> None:
  if bool(values.net) == bool(values.elements):
    raise errors.ConfigError(
      f'net: expected either --net or --elements, received {values.net!r} and '
      f'{values.elements:g}. Give --net=alexnet, or --elements=61e6.'
    )
  command.at_least(0, values, 'elements', 'seconds', 'latency')
  command.at_least(1, values, 'bandwidth', 'workers', 'rounds')
  options.in_range('overlap', values.overlap, 0, 1)
  options.in_range('efficiency', values.efficiency, 0.01, 1)
  if not (values.seconds or values.parameters or values.fitted_to):
    raise errors.ConfigError(
      'seconds: expected the seconds of a step of one worker without exchange, '
      'received 0. Train a few steps on one machine and take sec/batch from '
      'the log.'
    )


COMMAND = command.Command(USAGE, PlanFlags, act)
