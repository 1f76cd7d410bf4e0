"""Scores of the parameters of a run that trains, at the end of an epoch."""

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

  Every process takes its share of the batches; what they count is added.

  Args:
    data_dir: folder of the data, for messages.
    subsets: what is scored, by name; see `evaluation.open_subset`.
    model: with the variables of the first replica.
    context: where the run takes place.

  Returns:
    Scores the present parameters; all processes must call it. It returns the
    mean over all examples of a subset by '<subset>_<metric>', of all of
    `metrics.EVALUATION`.
  """
  group = context.exchange.group
  part = (1, 0) if group is None else (group.size, group.rank)
  predict = evaluation.predictor(model, context.exchange.devices[0])

  def score() -> dict[str, float]:
    own = []
    for name, (stream, _) in subsets.items():
      with batches.explaining(data_dir, name):
        sums = functools.reduce(
          lambda sums, batch: predict(sums, *batch),
          stream.shard(*part),
          evaluation.no_sums(),
        )
      own.append(sums.numpy())
    sums = np.stack(own)
    if group is not None:
      # What travels is int32; counts stay exact.
      with context.hooks.time_limit('Scores of an epoch'):
        everyone = group.all_gather_now(sums.view(np.int32)[np.newaxis])
      sums = everyone.view(np.float64).sum(axis=0)
    return {
      metrics.epoch_name(name, kind): float(total / split.count)
      for (name, (_, split)), row in zip(subsets.items(), sums, strict=True)
      for kind, total in zip(metrics.EVALUATION, row, strict=True)
    }

  return score
