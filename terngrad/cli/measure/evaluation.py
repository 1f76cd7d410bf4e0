"""Measures the evaluator's speed relative to the bare model."""

import dataclasses

from terngrad import lazy
from terngrad.cli import command
from terngrad.config import options

evaluation_table = lazy.module('terngrad.measure.evaluation_table')

USAGE = """\
{program}: measures evaluation against the bare model, as ratios in one run.

  {program} --nets=lenet,cifar10_alexnet,alexnet

The loop of the evaluator and a loop that only calls the traced model take turns
over the same batches, which are in memory. Speeds are in examples per second; a
ratio of 1 means that scoring adds no time to the net.
"""

option = options.option


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeasureEvaluationFlags:
  """The flags of `terngrad measure eval`."""

  nets: tuple[str, ...] = option(
    ('lenet', 'cifar10_alexnet', 'alexnet'), 'Networks.', 'model'
  )
  num_classes: int = option(10, 'Classes of each network.', 'model')
  batch_size: int = option(32, 'Examples per batch.', 'data')
  batches: int = option(4, 'Batches to score.', 'data')
  rounds: int = option(9, 'Number of rounds for the median.', 'run')


def act(values: MeasureEvaluationFlags) -> None:
  """Prints the table."""
  command.at_least(1, values, 'num_classes', 'batch_size', 'batches', 'rounds')
  table = evaluation_table.measure(
    values.nets,
    values.batch_size,
    values.batches,
    values.num_classes,
    values.rounds,
  )
  command.say(
    f'Batches of {values.batch_size}, medians of {values.rounds} rounds of '
    f'{values.batches} batches'
  )
  command.say(table.to_string())


COMMAND = command.Command(
  USAGE, MeasureEvaluationFlags, act, required=('nets',), packages=('pandas',)
)
