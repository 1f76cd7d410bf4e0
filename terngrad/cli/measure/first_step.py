"""Measures how long a new process takes until its first step ends."""

import dataclasses
from typing import Any

from terngrad import lazy
from terngrad.cli import command
from terngrad.cli import flags
from terngrad.cli.measure import step
from terngrad.config import options

determinism = lazy.module('terngrad.machine.determinism')
first_step = lazy.module('terngrad.measure.processes.first_step')
step_table = lazy.module('terngrad.measure.step_table')
tables = lazy.module('terngrad.measure.tables')

USAGE = """\
{program}: measures the seconds until the first step of a new process ends.

  {program} --net=resnet_v1_50 --image_size=64 --dataset_name=cifar10

The kinds of step are those of `terngrad measure step`: plain Keras with and
without XLA, float32 replicas, and replicas with a gradient code. Each runs in
two new processes: one whose cache of compiled code is empty ("cold"), then one
that finds what the first has compiled ("warm"). The seconds begin after the
imports, and include building the model, tracing and compiling.

--rounds=3 measures each kind three times, in turns, and prints medians.
"""

option = options.option
_Options: Any = command.drop_options(
  step.MeasureStepFlags,
  (
    *('nodes', 'num_gpus', 'optimize_gradient_memory', 'output'),
    *('rounds', 'steps'),
  ),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeasureFirstStepFlags(_Options):
  """The flags of `terngrad measure first_step`."""

  num_gpus: int = option(1, 'Devices, with one replica each.', 'devices')
  nodes: tuple[str, ...] = option(
    ('1', '4'), 'Numbers of nodes to measure the code with.', 'devices'
  )
  rounds: int = option(1, 'How often each kind is measured.', 'run')
  output: str = option('', 'Folder for measure_first_step.csv.', 'run')
  in_process: str = option(
    '', 'Measure only this kind, once, in this process.', 'run'
  )


def act(values: MeasureFirstStepFlags) -> None:
  """Prints the table, and writes it if --output names a directory."""
  command.at_least(1, values, 'rounds')
  config = step.config_of(values)
  nodes = command.counts('nodes', values.nodes)
  kinds = step_table.kinds(config, nodes)
  if values.in_process:
    options.choice('in_process', values.in_process, kinds)
    with determinism.require(config.devices.deterministic):
      command.say(first_step.time_here(kinds[values.in_process]).line())
    return
  commands = {
    kind: [
      *('measure', 'first_step'),
      *flags.to_words(dataclasses.replace(values, in_process=kind)),
    ]
    for kind in kinds
  }
  command.say(f'{values.net}, {values.image_size} px, {values.batch_size}')
  found = first_step.measure(commands, values.rounds, command.say)
  command.say(found.to_string())
  if values.output:
    tables.write(values.output, 'measure_first_step', found, index=True)


COMMAND = command.Command(
  USAGE, MeasureFirstStepFlags, act, required=('nodes',)
)
