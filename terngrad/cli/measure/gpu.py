"""Checks a GPU: equal words, runs that repeat, times of codes and steps."""

import dataclasses
import os

from terngrad import errors
from terngrad import lazy
from terngrad import quiet
from terngrad import signals
from terngrad.cli import command
from terngrad.cli import flags
from terngrad.config import options
from terngrad.measure.gpu import figures
from terngrad.measure.gpu import parts

devices = lazy.module('terngrad.cluster.devices')
results = lazy.module('terngrad.measure.gpu.results')
supervisor = lazy.module('terngrad.measure.gpu.supervisor')

USAGE = """\
{program}: checks this project on a GPU, in at most six minutes.

  {program}
  {program} --parts=words,repeat --output=CHECK
  {program} --device=cpu:0 --small

Parts, each in a process with a time limit, in seconds. Time that earlier parts
did not need is added to it:

{parts}

Figures are printed as they come. At the end there are a table and, in --output,
gpu_check.json, gpu_check.txt and the messages of each part. The files are
replaced after each figure, so a lost connection loses none. A part that fails
or reaches its limit is reported, and the next one runs.

Exit codes: 0 if all parts ended and no figure exceeds its limit; 1 otherwise; 3
without a GPU. With --device=cpu:0 --small the same parts run on a CPU with
small sizes. That shows that they work; the times say nothing.
"""

option = options.option


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeasureGpuFlags:
  """The flags of `terngrad measure gpu`."""

  device: str = option('gpu:0', 'Device to check.', 'devices')
  parts: tuple[str, ...] = option(
    tuple(parts.PARTS), 'Parts to run, in the order above.', 'run'
  )
  small: bool = option(False, 'Small sizes, to try it without a GPU.', 'run')
  output: str = option('gpu_check', 'Folder for the results.', 'run')
  in_process: str = option(
    '', 'Run only this part, in this process, without a time limit.', 'run'
  )


def act(values: MeasureGpuFlags) -> int:
  """Runs the parts and prints the table; returns the exit code."""
  for name in (*values.parts, *filter(None, [values.in_process])):
    options.choice('parts', name, parts.PARTS)
  if values.in_process:
    return _run_part(values)
  found = results.CheckResults(values.output, values.device)
  chosen = {n: p for n, p in parts.PARTS.items() if n in values.parts}
  commands = {name: _command(values, name) for name in chosen}
  if not supervisor.run(chosen, commands, found, command.say):
    return int(supervisor.NO_DEVICE)
  command.say(found.text())
  command.say(f'results: {os.path.join(values.output, results.NAME)}.json')
  return command.DONE if found.passed else command.FAILED


def _command(values: MeasureGpuFlags, name: str) -> list[str]:
  """Returns the command line that runs one part in a process."""
  one = dataclasses.replace(values, in_process=name)
  return command.line_of('measure', 'gpu', *flags.to_words(one))


def _run_part(values: MeasureGpuFlags) -> int:
  """Runs one part in this process; prints lines for `supervisor`."""
  with signals.block_while_importing():
    quiet.import_tensorflow()
  (device,) = devices.device_names([values.device])
  try:
    devices.check_exist([device])
  except errors.ConfigError:
    return command.report_error(
      'error',
      f'device: expected {values.device}, received a machine on which '
      'TensorFlow finds no such device. Install a driver and TensorFlow with '
      'CUDA (docs/gpu.md), or check the parts with --device=cpu:0 --small.',
      supervisor.NO_DEVICE,
    )
  settings = parts.CheckSettings(device, values.small)
  with quiet.suppressed_retracing_warnings():
    parts.PARTS[values.in_process].run(
      settings, lambda figure: command.say(figures.encode(figure))
    )
  return command.DONE


USAGE_OF_PARTS = '\n'.join(
  f'  {name:12} {part.summary} ({part.seconds:g})'
  for name, part in parts.PARTS.items()
)
COMMAND = command.Command(
  USAGE.replace('{parts}', USAGE_OF_PARTS),
  MeasureGpuFlags,
  act,
  required=('parts', 'output'),
  needs_tensorflow=False,
)
