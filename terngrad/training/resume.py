"""Where a run starts from: its own last checkpoint, or another run's."""

from datetime import datetime

from terngrad.training import checkpoints
from terngrad.training import replicas


def continue_run(config, run, report):
  """Restores the newest checkpoint of train_dir; returns its step, or 0."""
  path = checkpoints.newest(config.train_dir)
  if path is None:
    checkpoints.check_empty(config.train_dir)
    return 0
  layout = checkpoints.read_layout(path)
  expected = run.layout._asdict()
  fields = ('net', 'num_classes', 'optimizer')
  checkpoints.check_layout(path, layout, {k: expected[k] for k in fields})
  _load(run, path, layout, run.names)
  step = checkpoints.step_of(path)
  report(f'{datetime.now()}: restored {path}, continuing after step {step}')
  changed = [
    field
    for field in ('num_workers', 'max_steps')
    if getattr(layout, field) != expected[field]
  ]
  for field in changed:
    report(
      f'{field} was {getattr(layout, field)} before and is now '
      f'{expected[field]}: the run does not end at the same bits'
    )
  return step


def start_from_pretrained(config, run, report):
  """Restores what --pretrained_model_checkpoint_path names; its step, or 0."""
  if not config.pretrained_model_checkpoint_path:
    return 0
  path = checkpoints.find(config.pretrained_model_checkpoint_path)
  layout = checkpoints.read_layout(path)
  if not config.fine_tune:
    _load(run, path, layout, run.names)
    report(f'{datetime.now()}: restored all of {path}')
    return checkpoints.step_of(path)
  count = len(run.parameters) + len(run.replicas[0].statistics)
  names = [name for name in run.names[:count] if name not in run.logits]
  _load(run, path, layout, names)
  # Averages start from the restored values, as they do from fresh ones.
  first = run.replicas[0]
  values = (*first.trainable, *first.statistics)
  for average, value in zip(first.averages, values, strict=True):
    average.assign(value)
  for other in run.replicas[1:]:
    replicas.copy(first, other)
  report(
    f'{datetime.now()}: restored {len(names)} variables of {path}; left out: '
    f'{", ".join(sorted(set(run.names[:count]) - set(names)))}'
  )
  return 0


def _load(run, path, layout, names):
  """Restores `names` into all replicas from one that is stored."""
  first = run.replicas[0]
  variables = dict(zip(run.names, first.variables(), strict=True))
  checkpoints.restore(
    path, layout.places[0], {name: variables[name] for name in names}
  )
  for other in run.replicas[1:]:
    replicas.copy(first, other)
