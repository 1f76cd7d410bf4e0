"""Scores a run in training on other subsets at the end of an epoch."""

import functools
from collections.abc import Callable
from collections.abc import Mapping

import keras
import numpy as np
import tensorflow as tf

from slim.datasets import factory as datasets
from terngrad.training import batches
from terngrad.training import evaluation
from terngrad.training import execution
from terngrad.training import metrics


def scorer(
  data_dir: str,
  subsets: Mapping[str, tuple[tf.data.Dataset, datasets.SplitInfo]],
  model: keras.Model,
  context: execution.ExecutionContext,
) -> Callable[[], dict[str, float]]:
  """Makes the function that scores a model at the end of an epoch.

  Every process scores a share of the batches; the sums of all are added.

  Args:
    data_dir: folder of the data, for error messages.
    subsets: opened subsets by name, from `evaluation.open_subset`.
    model: model with the variables of the first replica.
    context: the context of the run.

  Returns:
    A function that scores the current parameters. All processes must call it.
    It returns the mean over all examples of each subset and each metric of
    `metrics.EVALUATION`, and for text of `metrics.TEXT`, by
    '<subset>_<metric>'.
  """
  group = context.exchange.group
  part = (1, 0) if group is None else (group.size, group.rank)
  predict = evaluation.predictor(model, context.exchange.devices[0])

  def score() -> dict[str, float]:
    subset_sums = []
    for name, (stream, _) in subsets.items():
      with batches.explain_read_errors(data_dir, name):
        sums = functools.reduce(
          lambda sums, batch: predict(sums, *batch),
          stream.shard(*part),
          evaluation.zero_sums(),
        )
      subset_sums.append(sums.numpy())
    sums = np.stack(subset_sums)
    if group is not None:
      # all_gather_now sends int32 words; as float64 bits, sums stay exact.
      with context.hooks.time_limit('Scores of an epoch'):
        gathered = group.all_gather_now(sums.view(np.int32)[np.newaxis])
      sums = gathered.view(np.float64).sum(axis=0)
    return {
      metrics.epoch_name(name, kind): values[kind.name]
      for (name, (_, split)), row in zip(subsets.items(), sums, strict=True)
      for values in [_values(name, split, row)]
      for kind in metrics.evaluated()
      if kind.name in values
    }

  return score


def _values(
  subset: str, split: datasets.SplitInfo, sums: np.ndarray
) -> dict[str, float]:
  """Returns the scores of a subset by name, from its sums float64 [metrics]."""
  values = {
    kind.name: float(total / split.count)
    for kind, total in zip(metrics.EVALUATION, sums, strict=True)
  }
  if split.text:
    bits = split.text.bits_per_nat(subset, split.num_examples)
    values |= metrics.text_scores(values['loss'], bits)
  return values
