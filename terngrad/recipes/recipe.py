"""What a recipe of local steps consists of."""

from collections.abc import Mapping
from typing import Any
from typing import NamedTuple


class Recipe(NamedTuple):
  """A published combination of options of local steps.

  Attributes:
    name: that users write.
    source: authors, year and address of the paper.
    every: H, number of local steps between two exchanges.
    codec: code of the change of the parameters, as for `--codec`.
    outer: outer optimizer, as for `--optimizer`.
    outer_learning_rate: of the outer optimizer.
    inner: optimizer of the local steps, as for `--inner_optimizer`.
    inner_learning_rate: of the local steps.
    uncertain: names of the attributes above whose values are not from the
      paper.
    most_workers: largest number of workers; 0 for no limit.
  """

  name: str
  source: str
  every: int
  codec: str
  outer: str
  outer_learning_rate: float
  inner: str
  inner_learning_rate: float
  uncertain: tuple[str, ...] = ()
  most_workers: int = 0

  def flags(self) -> dict[str, Any]:
    """Returns the values of the trainers' flags, by name."""
    return {flag: getattr(self, name) for name, flag in FLAGS.items()}

  def arguments(self) -> dict[str, Any]:
    """Returns the arguments of `LocalSteps`, by name."""
    return {name: getattr(self, name) for name in ARGUMENTS}

  def check_workers(self, count: int) -> None:
    """Raises ValueError if the recipe is not for so many workers."""
    if self.most_workers and count > self.most_workers:
      raise ValueError(
        f'recipe: expected at most {self.most_workers} worker for {self.name}, '
        f'received {count}. Use recipe=diloco, which is the same with several '
        'workers.'
      )

  def describe(self, values: Mapping[str, Any]) -> str:
    """Returns a line for the log: what the recipe is made of.

    Args:
      values: of the run, by attribute; those that differ from the recipe are
        marked.
    """
    items = []
    for name, value in values.items():
      wanted = getattr(self, name)
      remark = ''
      if value != wanted:
        remark = f' (changed; the recipe has {wanted})'
      elif name in self.uncertain:
        remark = ' (not from the paper)'
      items.append(f'{name}={value}{remark}')
    return f'recipe {self.name} ({self.source}): {", ".join(items)}'


ARGUMENTS = ('every', 'codec', 'outer', 'outer_learning_rate')
# Flags of the trainers by attribute.
FLAGS = {
  'every': 'local_steps',
  'codec': 'codec',
  'outer': 'optimizer',
  'outer_learning_rate': 'outer_learning_rate',
  'inner': 'inner_optimizer',
  'inner_learning_rate': 'initial_learning_rate',
}
