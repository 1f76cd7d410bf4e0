"""The tables of metrics: `TRAINING` is logged, `EVALUATION` scores a network.

Log lines, `metrics.jsonl`, TensorBoard, curves, the page of a run and
comparisons of runs read the tables, and show metrics in their order. To add a
metric, add one entry here.
"""

import math
from collections.abc import Iterable
from collections.abc import Mapping
from typing import TYPE_CHECKING
from typing import Any
from typing import NamedTuple

from terngrad import lazy
from terngrad.training import metric

if TYPE_CHECKING:
  from terngrad.step import step as steps

# Lazy: plots and pages of runs need only the names, not TensorFlow.
scores = lazy.module('terngrad.training.example_scores')


# A line of `metrics.jsonl`: numbers by name; None for NaN and infinity.
Record = dict[str, Any]


class Arrivals(NamedTuple):
  """Gradients received since the last record of an asynchronous run.

  Attributes:
    staleness: staleness of every applied gradient; [0] if there was none.
    dropped: number of gradients dropped because of their staleness.
  """

  staleness: list[int]
  dropped: int


def epoch_name(subset: str, kind: metric.Metric) -> str:
  """Returns the name of a subset's score in the records of training.

  `kind` is a metric of `evaluated`.
  """
  return f'{subset}_{kind.name}'


def epoch_subsets(
  records: Iterable[Mapping[str, Any]], kind: metric.Metric
) -> list[str]:
  """Lists the subsets with scores in records of training, by first score.

  `kind` is a metric of `evaluated`.
  """
  suffix = epoch_name('', kind)
  # The losses of training end like the loss of a subset.
  training = {metric.name for metric in TRAINING}
  names = dict.fromkeys(
    name for record in records for name in record if name not in training
  )
  return [n.removesuffix(suffix) for n in names if n.endswith(suffix)]


LOSS = metric.Axes('loss', logarithmic=True)
ACCURACY = metric.Axes('accuracy, %')
BITS_PER_BYTE = metric.Axes('bits a byte')
ZEROS = metric.Axes('zeros among the codes, %')
BITS = metric.Axes('bits sent per element')
SPEED = metric.Axes('examples/s')
LEARNING_RATE = metric.Axes('learning rate')
# Order of the plots on a page; other plots follow.
PLOTS = (LOSS, BITS_PER_BYTE, ACCURACY, ZEROS, BITS, SPEED, LEARNING_RATE)


def bits_per_element(result: 'steps.StepResult', num_elements: int) -> float:
  """Computes the bits per gradient element that a worker sent in a step.

  Counts words and probes, 4 bytes each; mean over the workers.
  """
  words = float(result.sent.numpy().mean())
  return 32 * (words + result.probes.shape[1]) / num_elements


# The legend of compared runs shows this value.
SENT = metric.Metric(
  'bits_per_element',
  lambda m: bits_per_element(m.result, m.num_elements),
  brackets='{bits_per_element:.2f} bits/element',
  curve=metric.CurveFormat(BITS),
  fact=metric.CellFormat('bits sent per element', '{:.2f}'.format),
  column=metric.CellFormat('bits/element sent', lambda value: round(value, 2)),
)
# A resumed run continues these two from the last record.
SMOOTHED = metric.Metric(
  'entropy_loss_smoothed',
  lambda m: m.smoothed,
  tag='entropy_loss',
  curve=metric.CurveFormat(LOSS, 'cross entropy, moving average'),
  compared=metric.CurveFormat(
    metric.Axes('training cross entropy, moving average', logarithmic=True)
  ),
)
SECONDS = metric.Metric(
  'seconds',
  lambda m: m.seconds,
  fact=metric.CellFormat('seconds of training', '{:.0f}'.format),
  column=metric.CellFormat(
    'seconds', lambda value: round(value, 1), first=True
  ),
)

EPOCH_LOSS = metric.Metric('epoch_loss', lambda m: m.means[0])
EPOCH_ACCURACY = metric.Metric(
  'accuracy',
  lambda m: m.means[1],
  curve=metric.CurveFormat(
    ACCURACY, 'top-1, training, in the epoch', factor=100
  ),
  fact=metric.CellFormat('top-1 accuracy, training', '{:.2%}'.format),
)

# Each `compute` takes a `meter.Meter` and returns a number, or None if the run
# has none. Names and tags are those of the 2017 code, where the tags of
# unsmoothed losses end in `_raw`.
TRAINING = (
  metric.Metric(
    'entropy_loss',
    lambda m: m.entropy,
    tag='entropy_loss_raw',
    line='entropy_loss = {entropy_loss:.2f}',
    curve=metric.CurveFormat(LOSS, 'cross entropy'),
  ),
  metric.Metric(
    'reg_loss',
    lambda m: m.regularization,
    line='reg_loss = {reg_loss:.2f}',
  ),
  metric.Metric(
    'total_loss',
    lambda m: m.entropy + m.regularization,
    tag='total_loss_raw',
    line='total_loss = {total_loss:.2f}',
    curve=metric.CurveFormat(LOSS, 'total', first=True),
    fact=metric.CellFormat('loss', '{:.3f}'.format),
  ),
  SMOOTHED,
  metric.Metric(
    'total_loss_smoothed',
    lambda m: m.smoothed + m.regularization,
    tag='total_loss',
  ),
  metric.Metric(
    'learning_rate',
    lambda m: m.learning_rate,
    curve=metric.CurveFormat(LEARNING_RATE),
  ),
  metric.Metric(
    'examples_per_sec',
    lambda m: m.epochs.batch_size / m.sec_per_batch,
    brackets='{examples_per_sec:.1f} examples/sec',
    curve=metric.CurveFormat(SPEED),
  ),
  metric.Metric(
    'sec_per_batch',
    lambda m: m.sec_per_batch,
    brackets='{sec_per_batch:.3f} sec/batch',
  ),
  SENT,
  SECONDS,
  EPOCH_LOSS,
  EPOCH_ACCURACY,
  metric.Metric(
    'loss_scale', lambda m: float(m.scaling[0]) if m.scaling else None
  ),
  metric.Metric(
    'staleness',
    lambda m: (
      m.arrivals and sum(m.arrivals.staleness) / len(m.arrivals.staleness)
    ),
    brackets='staleness {staleness:.2f}, at most {largest_staleness}',
  ),
  metric.Metric(
    'largest_staleness', lambda m: m.arrivals and max(m.arrivals.staleness)
  ),
  metric.Metric(
    'dropped_gradients',
    lambda m: m.arrivals and m.arrivals.dropped,
    brackets='{dropped_gradients} dropped',
  ),
)

# Each `compute` takes labels, int32 [b], and logits, float32 [b, classes], or
# those of all tokens, [b, T] and [b, T, classes]. It returns bool or float [b].
# The score is the mean over all examples.
EVALUATION = (
  metric.Metric(
    'precision_at_1',
    lambda labels, logits: scores.is_in_top(1, labels, logits),
    tag='Accuracy @ 1',
    line='precision @ 1 = {precision_at_1:.4f}',
    curve=metric.CurveFormat(ACCURACY, 'top-1', factor=100),
    fact=metric.CellFormat('top-1 accuracy', '{:.2%}'.format),
    column=metric.CellFormat('evaluated accuracy', '{:.2%}'.format),
    compared=metric.CurveFormat(
      metric.Axes('evaluated accuracy, %'), factor=100
    ),
  ),
  metric.Metric(
    'recall_at_5',
    lambda labels, logits: scores.is_in_top(5, labels, logits),
    tag='Accuracy @ 5',
    line='recall @ 5 = {recall_at_5:.4f}',
    curve=metric.CurveFormat(ACCURACY, 'top-5', factor=100),
  ),
  metric.Metric(
    'loss',
    lambda labels, logits: scores.cross_entropy(labels, logits),
    tag='Loss',
    fact=metric.CellFormat('cross entropy', '{:.4f}'.format),
  ),
)

# Scores of text. Each `compute` takes the mean loss of a token in nats, and the
# bits a byte that 1 nat means.
TEXT = (
  metric.Metric(
    'bits_per_byte',
    lambda loss, bits_per_nat: loss * bits_per_nat,
    line='bits a byte = {bits_per_byte:.4f}',
    curve=metric.CurveFormat(BITS_PER_BYTE, 'evaluation'),
    fact=metric.CellFormat('bits a byte', '{:.4f}'.format),
    column=metric.CellFormat('bits a byte', '{:.4f}'.format),
    compared=metric.CurveFormat(BITS_PER_BYTE),
  ),
  metric.Metric(
    'perplexity',
    # 1e304, the largest one, means that the net is useless.
    lambda loss, bits_per_nat: math.exp(min(loss, 700)),
    line='perplexity = {perplexity:.2f}',
    fact=metric.CellFormat('perplexity of a token', '{:.2f}'.format),
  ),
)


def evaluated() -> tuple[metric.Metric, ...]:
  """Returns all scores that the records of an evaluation may hold."""
  return (*EVALUATION, *TEXT)


def text_scores(loss: float, bits_per_nat: float) -> dict[str, float]:
  """Computes the scores of `TEXT`, by name, from the mean loss of a token."""
  return {kind.name: kind.compute(loss, bits_per_nat) for kind in TEXT}
