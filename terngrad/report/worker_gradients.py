"""The gradients of every worker in one step of a run."""

import os
from collections.abc import Callable
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from slim.datasets.records import disk
from terngrad import errors
from terngrad.checkpoint import pretrained
from terngrad.checkpoint import resume
from terngrad.config import training as configs
from terngrad.exchange import towers
from terngrad.training import assembly


def take(
  config: configs.TrainConfig, log: Callable[[str], object]
) -> tuple[dict[str, np.ndarray], int]:
  """Computes the next step of a run, and keeps nothing of its update.

  Args:
    config: valid; without a train_dir the step is the first.
    log: takes a line of what is begun with.

  Returns:
    (gradients by parameter, or what local steps changed, float32 [workers,
    ...], L2 terms included, of those that the step exchanges; the number of the
    step, from 1).

  Raises:
    terngrad.errors.ConfigError: the configuration does not fit the run, or
      the run has no checkpoint.
  """
  run, folder = assembly.assemble(config), config.run.train_dir
  if folder:
    step = resume.continue_run(folder, run, log).step
  else:
    step = pretrained.start(config.start, run, log)
  if folder and not step:
    raise errors.ConfigError(
      f'train_dir: expected a run with a checkpoint, received {folder}, which '
      'has none. Wait until it has saved one, or leave --train_dir out for the '
      'first step.'
    )
  images, labels = next(run.batches(step))
  train_step, codec = run.chosen(step, floats=True)
  result = train_step.take(
    images,
    labels,
    tf.constant(step, tf.int64),
    tf.constant(run.learning_rate(step), tf.float32),
    tf.constant(0.0),
  )
  payloads = towers.in_order(
    [result.payloads(place) for place in range(len(result.words))]
  )
  # Float payloads are the gradients' own bits.
  workers = [
    codec.decode_words([payload[tf.newaxis]], result.shared)
    for payload in payloads
  ]
  arrays = {
    run.parameters[i]: np.stack([gradients[place] for gradients in workers])
    for place, i in enumerate(codec.variables)
  }
  return arrays, step + 1


def write(
  path: str | os.PathLike[str], arrays: Mapping[str, np.ndarray]
) -> None:
  """Writes gradients as a file that appears whole or not at all.

  Args:
    path: ends in .npz.
    arrays: by name.
  """
  with disk.replacing(path) as hidden, open(hidden, 'wb') as file:
    # numpy's own type takes them for its option `allow_pickle`.
    named: dict[str, Any] = dict(arrays)
    np.savez(file, **named)
