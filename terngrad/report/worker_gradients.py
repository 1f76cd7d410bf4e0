"""Gradients of every worker in one step of a run."""

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
from terngrad.codec.methods import registry
from terngrad.config import training as configs
from terngrad.exchange import towers
from terngrad.machine import determinism
from terngrad.reduce import bucketing
from terngrad.training import assembly


def take(
  config: configs.TrainConfig, log: Callable[[str], object]
) -> tuple[dict[str, np.ndarray], int]:
  """Computes the gradients of a run's next step and discards its update.

  Args:
    config: a valid configuration; without a train_dir, the first step is used.
    log: called with each log line about the restored checkpoint.

  Returns:
    (by parameter, the gradients that the step exchanges, float32 [workers,
    ...], including L2 terms; with local steps, the parameters' changes instead;
    the number of the step, from 1).

  Raises:
    terngrad.errors.ConfigError: the configuration does not fit the run, or
      the run has no checkpoint.
  """
  with determinism.require(config.devices.deterministic):
    return _take(config, log)


def _take(
  config: configs.TrainConfig, log: Callable[[str], object]
) -> tuple[dict[str, np.ndarray], int]:
  context = assembly.process_context(config)
  if isinstance(context.exchange, towers.Towers):
    context.exchange = context.exchange._replace(keeps_words=True)
  run, folder = assembly.assemble(config, context), config.run.train_dir
  if folder:
    step = resume.continue_run(folder, run, log).step
  else:
    step = pretrained.start(config.start, run, log)
  if folder and not step:
    raise errors.ConfigError(
      f'train_dir: expected a run with a checkpoint, received {folder} without '
      'one. Wait for its first checkpoint, or remove --train_dir to use the '
      'first step.'
    )
  train_step, codec = run.select_step(step, floats=True)
  if any(state.mean_state for states in codec.states() for state in states):
    raise errors.ConfigError(
      'codec: expected a code whose float32 steps send gradients, received '
      f'{config.codes.text(config.num_workers)}, whose steps send differences. '
      'Use another --codec.'
    )
  images, labels = next(run.batches(step))
  result = train_step.take(
    images,
    labels,
    tf.constant(step, tf.int64),
    tf.constant(run.learning_rate(step), tf.float32),
    tf.constant(0.0),
  )
  payloads = towers.order_by_worker(
    [result.payloads(i) for i, words in enumerate(result.words) if words]
  )
  # Float payloads are the exact bits of the gradients, whatever the method
  # makes of them.
  plain = bucketing.replace_methods(
    codec, lambda _: registry.method('identity')
  )
  workers = [
    plain.decode_words([payload[tf.newaxis]], result.shared)
    for payload in payloads
  ]
  arrays = {
    run.parameters[i]: np.stack([gradients[index] for gradients in workers])
    for index, i in enumerate(codec.variables)
  }
  return arrays, step + 1


def write(
  path: str | os.PathLike[str], arrays: Mapping[str, np.ndarray]
) -> None:
  """Writes gradients to a file atomically.

  Args:
    path: ends in .npz.
    arrays: by name.
  """
  with disk.replace_file(path) as hidden, open(hidden, 'wb') as file:
    # Without `Any`, mypy matches the values to the option `allow_pickle`.
    named: dict[str, Any] = dict(arrays)
    np.savez(file, **named)
