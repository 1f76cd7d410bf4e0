"""Continuing a run from its own last checkpoint."""

from datetime import datetime
from typing import NamedTuple

from terngrad.checkpoint import checkpoints
from terngrad.step import loss_scaling
from terngrad.step import replicas

# What a run must keep: its variables, and which examples come at which step.
_KEPT = (
  'net',
  'num_classes',
  'optimizer',
  'trainable_scopes',
  'batch_size',
  'seed',
  'dataset_name',
  'subset',
  'bn_statistics',
)
# What may change between two parts of a run, which then ends at other bits.
_TOLD = ('num_workers', 'max_steps', 'codec', 'dtype')


class Restored(NamedTuple):
  """What a run goes on from, beside its variables.

  Attributes:
    step: steps taken before; 0 where there was no checkpoint.
    states: what methods remembered, see `stored_states.Store.deal`.
  """

  step: int
  states: dict


NOTHING = Restored(0, {})


def continue_run(config, run, report):
  """Restores the newest checkpoint of train_dir; a `Restored`.

  Raises:
    errors.CheckpointError: it is of a run with other variables or other
      examples, or damaged.
  """
  path = checkpoints.newest(config.train_dir)
  if path is None:
    checkpoints.check_empty(config.train_dir)
    return NOTHING
  layout = checkpoints.read_layout(path)
  expected = run.layout._asdict()
  own = layout.bn_statistics == 'per_device'
  kept = (*_KEPT, 'num_devices') if own else _KEPT
  # None: not in a checkpoint that is older than the field.
  known = [name for name in kept if getattr(layout, name) is not None]
  checkpoints.check_layout(path, layout, {n: expected[n] for n in known})
  there = _load(run, path, layout)
  step = checkpoints.step_of(path)
  report(f'{datetime.now()}: restored {path}, continuing after step {step}')
  for field in _TOLD:
    before = getattr(layout, field)
    if before not in (None, expected[field]):
      report(
        f'{field} was {before} before and is now {expected[field]}: the run '
        'does not end at the same bits'
      )
  states, missing, unused = run.store.read(path)
  # What methods share is among the variables of a device.
  missing += [name for name in run.method_states if name not in there]
  unused += sorted(there - {*run.names, *loss_scaling.NAMES})
  for what, names in (
    ('misses what the run remembers of', missing),
    ('holds what the run has no use for:', unused),
  ):
    if names:
      report(
        f'The checkpoint {what} {names[0]}'
        f'{f" and {len(names) - 1} more" if names[1:] else ""}: the run does '
        'not end at the same bits'
      )
  return Restored(step, states)


def _load(run, path, layout):
  """Restores all replicas from one, and what is a replica's own from itself.

  Returns:
    The set of names that the checkpoint holds of a device.
  """
  # A loss scale begins anew where there was none.
  left_out = () if layout.dtype == 'float16' else loss_scaling.NAMES
  first = run.replicas[0]
  # What methods share begins anew in a run that had another method.
  there = checkpoints.names_of(path, layout.places[0])
  left_out = {*left_out, *(set(run.method_states) - there)}
  shared = _named(run, first, lambda name: name not in left_out)
  checkpoints.restore(path, layout.places[0], shared)
  own = {n for n, mine in zip(run.names, first.own(), strict=True) if mine}
  for place, other in enumerate(run.replicas[1:], start=1):
    replicas.copy(first, other)
    checkpoints.restore(path, place, _named(run, other, own.__contains__))
  return there


def _named(run, replica, chosen):
  """{name: variable} of a replica, of the chosen names."""
  pairs = zip(run.names, replica.variables(), strict=True)
  return {name: variable for name, variable in pairs if chosen(name)}
