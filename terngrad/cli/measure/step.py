"""Measures training steps relative to steps without compression."""

import dataclasses
from typing import Any

from terngrad import lazy
from terngrad.cli import command
from terngrad.config import devices
from terngrad.config import options
from terngrad.config import training as configs

step_table = lazy.module('terngrad.measure.step_table')
tables = lazy.module('terngrad.measure.tables')

USAGE = """\
{program}: measures training steps, as ratios within one run.

  {program} --net=lenet --batch_size=64

Three kinds of step, on constant images: plain Keras on one device, with XLA or
without, whichever is faster; float32 replicas; replicas with a gradient code.
They take turns, round by round, and a ratio is the median over the rounds of
the ratios within a round, so that changes in the speed of the machine affect
both sides. More nodes are measured at the same total batch.

--device=gpu:0 measures on one GPU. All steps of a round are launched before the
device is waited for, and the batch is in its memory.
"""

option = options.option


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeasureStepFlags:
  """The flags of `terngrad measure step`."""

  net: str = option('lenet', 'Network.', 'model')
  image_size: int = option(28, 'Height and width of the input.', 'data')
  dataset_name: str = option(
    'mnist', 'Data set that defines the classes.', 'data'
  )
  batch_size: int = option(64, 'Examples per step.', 'data')
  num_gpus: int = option(2, 'Devices, with one replica each.', 'devices')
  device: str = option(
    '', 'One device, instead of --num_gpus: gpu:0 or cpu:0.', 'devices'
  )
  codec: str = option(
    'ternary', "Code, as the trainers' --codec spells it.", 'codes'
  )
  nodes: tuple[str, ...] = option(
    ('2', '4', '8'), 'Numbers of nodes to measure the code with.', 'devices'
  )
  optimize_gradient_memory: bool = option(
    False,
    'Also measure float32 replicas that recompute activations.',
    'devices',
  )
  averages: bool = option(
    False,
    'Keras also keeps moving averages of the parameters, as the replicas do.',
    'devices',
  )
  jit_compile: str = option(
    devices.AUTO, "As the trainers' --jit_compile.", 'devices'
  )
  deterministic: bool = option(
    True, "As the trainers' --deterministic.", 'devices'
  )
  rounds: int = option(15, 'Number of rounds for the median.', 'run')
  steps: int = option(10, 'Steps of each kind per round.', 'run')
  output: str = option('', 'Folder for measure_step.csv.', 'run')


def act(values: MeasureStepFlags) -> None:
  """Prints the table, and writes it if --output names a directory."""
  command.at_least(1, values, 'rounds', 'steps')
  measured = step_table.measure(
    config_of(values),
    command.counts('nodes', values.nodes),
    values.rounds,
    values.steps,
    recompute=values.optimize_gradient_memory,
    averages=values.averages,
  )
  placed = values.device or f'{values.num_gpus} devices'
  command.say(
    f'{values.net}, batch {values.batch_size}, {placed}, '
    f'medians of {values.rounds} rounds of {values.steps} steps'
  )
  command.say(measured.table.to_string())
  if measured.node_seconds is not None:
    command.say(
      f'Each node after the first {measured.fewest} adds '
      f'{1e3 * measured.node_seconds:.2f} ms per step.'
    )
  if values.output:
    tables.write(values.output, 'measure_step', measured.table, index=True)


def config_of(values: Any) -> configs.TrainConfig:
  """Returns the configuration of the steps that flags of this kind name."""
  return options.build(
    configs.TrainConfig,
    dataset_name=values.dataset_name,
    net=values.net,
    image_size=values.image_size,
    batch_size=values.batch_size,
    num_gpus=values.num_gpus,
    devices=(values.device,) if values.device else (),
    codec=values.codec,
    quantize_logits=True,
    benchmark_mode=True,
    jit_compile=values.jit_compile,
    deterministic=values.deterministic,
  )


COMMAND = command.Command(
  USAGE, MeasureStepFlags, act, required=('nodes',), packages=('pandas', 'tqdm')
)
