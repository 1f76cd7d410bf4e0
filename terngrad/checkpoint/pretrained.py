"""Starting from weights of another run, of TensorFlow 1 or of Keras."""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
from datetime import datetime

import numpy as np
import tensorflow as tf

from terngrad import errors
from terngrad.checkpoint import checkpoints
from terngrad.checkpoint import keras_weights
from terngrad.checkpoint import matching_weights
from terngrad.checkpoint import protocol
from terngrad.checkpoint import scopes
from terngrad.checkpoint import sources
from terngrad.step import replicas

_SHOWN = 20  # maximum number of names in a report line


def start(
  options: protocol.Start,
  run: protocol.RestorableRun,
  report: Callable[[str], object],
) -> int:
  """Restores the weights that the configuration starts from, and reports it.

  Restores parameters and moving statistics, except those in
  --checkpoint_exclude_scopes and, under --fine_tune, the logits and auxiliary
  logits. A run that continues the source's steps also gets the optimizer's
  slots and the moving averages that the source holds. Otherwise the averages
  start at the restored values.

  Args:
    options: what to start from.
    run: the run that receives the values.
    report: called with each log line.

  Returns:
    The step to begin at: the source's step, or 0 under --fine_tune and
    --restart_step, and if there is nothing to start from.

  Raises:
    errors.ConfigError, errors.CheckpointError: the source cannot be read or
      does not fit; no variable was changed.
  """
  source = _source(options, run)
  if source is None:
    return 0
  first = run.replicas[0]
  variables = dict(zip(run.names, first.variables(), strict=True))
  net = run.names[: len(first.averages)]
  excluded = _find_excluded(options, run, net)
  wanted = {n: variables[n] for n in net if n not in excluded}
  found = matching_weights.find(source, wanted, run.logits)
  _check(options, source, found)
  _check_tokens(source, found, run.layout)
  continues = not (options.fine_tune or options.restart_step)
  state = _read_state(source, variables, net, excluded) if continues else {}
  if continues:
    lacking = [name for name in run.method_states if name not in state]
    checkpoints.check_float_steps(
      source.path, source.step, run.float_steps, lacking
    )
  for name, value in found.values.items():
    variables[name].assign(value)
  for name, average in zip(net, first.averages, strict=True):
    average.assign(variables[name])
  for name, value in state.items():
    variables[name].assign(value)
  for other in run.replicas[1:]:
    replicas.copy(first, other)
  fresh = [n for n in run.names[len(net) :] if continues and n not in state]
  initialized = [*found.missing, *fresh]
  for line in _lines(source, found, state, excluded, initialized):
    report(f'{datetime.now()}: {line}')
  return source.step if continues else 0


def _source(
  options: protocol.Start, run: protocol.RestorableRun
) -> sources.WeightSource | None:
  if options.pretrained_weights:
    return keras_weights.open_file(options.pretrained_weights, run.order)
  path = options.pretrained_model_checkpoint_path
  return sources.open_checkpoint(path, run.layout.net) if path else None


def _find_excluded(
  options: protocol.Start, run: protocol.RestorableRun, net: list[str]
) -> list[str]:
  flag = 'checkpoint_exclude_scopes'
  excluded = scopes.members(flag, getattr(options, flag), run.layout.net, net)
  heads = run.logits if options.fine_tune else ()
  return [name for name in net if name in excluded or name in heads]


def _check(
  options: protocol.Start,
  source: sources.WeightSource,
  found: matching_weights.MatchedWeights,
) -> None:
  """Raises if required variables are missing."""
  if not found.missing or (options.ignore_missing_vars and found.values):
    return
  holds = ', '.join([*source.shapes, *source.unexpected][:5]) or 'nothing'
  raise errors.CheckpointError(
    f'{source.path}: expected {_list(found.missing)}, received a file without '
    f'these; it holds {holds}, ... If it holds other variables of the net, '
    'give --ignore_missing_vars to start these from initial values; else give '
    'the flags it was trained with, or another file.'
  )


def _check_tokens(
  source: sources.WeightSource,
  found: matching_weights.MatchedWeights,
  layout: checkpoints.Layout,
) -> None:
  """Refuses an embedding of other tokens, whose number may be equal."""
  ours = checkpoints.tokenizer_of(layout)
  if ours is None or source.tokenizer in (None, ours):
    return
  if wrong := [name for name in found.values if 'embedding' in name]:
    raise errors.CheckpointError(
      f'{source.path}: expected {_list(wrong)} of tokenizer {ours}, as '
      f'--data_dir has, received one of {source.tokenizer}. Convert the text '
      "with the checkpoint's tokenizer, or start without these: "
      f'--checkpoint_exclude_scopes={wrong[0].partition("/")[0]}.'
    )


def _read_state(
  source: sources.WeightSource,
  variables: Mapping[str, tf.Variable],
  net: list[str],
  excluded: list[str],
) -> dict[str, np.ndarray]:
  """Returns the slots, averages and loss scale that the source holds."""
  return {
    name: source.read(name)
    for name, variable in variables.items()
    if name not in net
    and name.rpartition('/')[0] not in excluded
    and source.shapes.get(name) == variable.shape.as_list()
  }


def _lines(
  source: sources.WeightSource,
  found: matching_weights.MatchedWeights,
  state: Collection[str],
  excluded: list[str],
  initialized: list[str],
) -> Iterator[str]:
  """Yields the report lines: restored, adapted, excluded and skipped names."""
  more = f' and {len(state)} of its training state' if state else ''
  yield f'restored {len(found.values)} variables of {source.path}{more}'
  yield from found.notes
  used = {*found.values, *state, *excluded}
  used |= {replicas.average_name(name) for name in used}
  skipped = [name for name in source.shapes if name not in used]
  for what, names in (
    ('excluded', excluded),
    ('not in the file, initial values used', initialized),
    ('skipped in the file', [*skipped, *source.unexpected]),
  ):
    if names:
      yield f'{what}: {_list(names)}'


def _list(names: list[str]) -> str:
  more = f' and {len(names) - _SHOWN} more' if len(names) > _SHOWN else ''
  return ', '.join(names[:_SHOWN]) + more
