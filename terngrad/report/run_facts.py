"""What a page shows of a run beside its curves: facts and options."""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import TYPE_CHECKING
from typing import Any
from typing import NamedTuple

from terngrad import lazy
from terngrad.training import metric
from terngrad.training import metrics

if TYPE_CHECKING:
  from terngrad.checkpoint import checkpoints

# Lazy: it imports all codecs.
codec_names = lazy.module('terngrad.report.codec_names')


class ReportedRun(NamedTuple):
  """A run as its page shows it.

  Attributes:
    trained: records of training, as for `curves.plots`.
    scored: records of evaluation.
    facts: values as text, by name.
    options: options of the run as text, by name.
    virtual: True if several nodes shared a device, so that seconds and
      examples/s do not measure the speed of as many workers.
  """

  trained: Sequence[Mapping[str, Any]]
  scored: Sequence[Mapping[str, Any]]
  facts: Mapping[str, str]
  options: Mapping[str, str] = {}
  virtual: bool = False


def report(
  trained: Sequence[Mapping[str, Any]],
  scored: Sequence[Mapping[str, Any]],
  layout: 'checkpoints.Layout | None',
  facts: Mapping[str, str],
) -> ReportedRun:
  """Collects what a page shows of a run.

  Args:
    trained: records of training, at least one.
    scored: records of evaluation.
    layout: layout of the newest checkpoint, if there is one.
    facts: further facts; they come first and replace others.
  """
  virtual = layout is not None and layout.num_workers > layout.num_devices
  last = last_values(trained, scored)
  if virtual and metrics.SECONDS.fact:
    last.pop(metrics.SECONDS.fact.label, None)
  known = facts_of_run(layout) if layout else {}
  options = options_of_run(layout) if layout else {}
  return ReportedRun(
    trained, scored, {**facts} | known | {**facts} | last, options, virtual
  )


def facts_of_run(layout: 'checkpoints.Layout') -> dict[str, str]:
  """Returns the page's facts about a checkpoint, by name."""
  workers, devices = layout.num_workers, layout.num_devices
  nodes = 'virtual nodes' if workers > devices else 'nodes'
  return {
    'net': layout.net,
    'codec': _codec(layout),
    'nodes': f'{workers} {nodes} on {devices} devices',
    'optimizer': layout.optimizer,
  }


def options_of_run(layout: 'checkpoints.Layout') -> dict[str, str]:
  """Returns the options that a checkpoint stores, as text by name."""
  stored = (layout.must_keep or {}) | (layout.may_change or {})
  if 'codec' in stored:
    stored |= {'codec': _codec(layout)}
  return {name: str(stored[name]) for name in sorted(stored)}


def _codec(layout: 'checkpoints.Layout') -> str:
  """Returns the codec of a checkpoint, in the syntax of `--codec`."""
  # Older checkpoints store it in a separate field.
  stored = (layout.may_change or {}).get('codec') or layout.codec
  if not stored:
    return 'unknown'
  return codec_names.codec_name(str(stored), layout.num_workers)


def last_values(
  losses: Sequence[Mapping[str, Any]], scores: Sequence[Mapping[str, Any]]
) -> dict[str, str]:
  """Returns the newest values of a run.

  Args:
    losses: records of training, at least one.
    scores: records of evaluation.

  Returns:
    Values as text, by label.
  """
  facts = {'steps': str(losses[-1]['step'])}
  newest = {key: value for record in losses for key, value in record.items()}
  for table, last in (
    (metrics.TRAINING, newest),
    (metrics.evaluated(), scores[-1] if scores else {}),
  ):
    for kind, shown in metric.entries(table, 'fact'):
      if last.get(kind.name) is not None:
        facts[shown.label] = shown.show(last[kind.name])
  for kind, shown in metric.entries(metrics.evaluated(), 'fact'):
    for subset in metrics.epoch_subsets(losses, kind):
      if (value := newest[metrics.epoch_name(subset, kind)]) is not None:
        facts[f'{shown.label}, {subset}'] = shown.show(value)
  return facts
