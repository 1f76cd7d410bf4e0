"""Measures the evaluator's speed relative to the bare model."""

import dataclasses

from terngrad import lazy
from terngrad.cli import command
from terngrad.config import options

evaluation_table = lazy.module('terngrad.measure.evaluation_table')

USAGE = """\
{program}: measures evaluation against the bare model, as ratios in one run.

  {program} --nets=lenet,cifar10_alexnet,alexnet

The evaluator's own loop and a loop that only calls the traced model take turns
over the same batches, which lie in memory. Speed is examples a second; 1 means
that scoring costs nothing beside the net.
"""

option = options.option


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flags:
  """The flags of `terngrad measure eval`."""

  nets: tuple[str, ...] = option(
    ('lenet', 'cifar10_alexnet', 'alexnet'), 'Networks.', 'model'
  )
  num_classes: int = option(10, 'Classes of each.', 'model')
  batch_size: int = option(32, 'Examples a batch.', 'data')
  batches: int = option(4, 'Batches to score.', 'data')
  rounds: int = option(9, 'Rounds to take the median of.', 'run')


def act(values: Flags) -> None:
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


COMMAND = command.Command(USAGE, Flags, act, required=('nets',))
