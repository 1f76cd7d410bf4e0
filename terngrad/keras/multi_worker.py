"""A fix for Keras 3 under `MultiWorkerMirroredStrategy`.

There, `fit` of Keras 3 fails twice with any optimizer. Before the first step
Keras reduces a whole batch over the replicas to find its shapes, which this
strategy refuses. Keras also reduces each metric along an axis that a scalar
does not have.
"""

import functools
import re
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf
from absl import logging

# First and last version in which both failures were observed.
_BROKEN = (3, 5), (3, 15)
_done: list[bool] = []


def repair_multi_worker() -> bool:
  """Patches Keras so that `fit` works on several processes.

  It fixes `evaluate` and `predict` too. Call it once, before the first of them.
  It changes Keras only under `MultiWorkerMirroredStrategy` with several
  processes.

  Returns:
    True if Keras was patched. False if it was already patched, or if its
    version is not known to need the patch, which is logged.
  """
  version = tuple(int(n) for n in re.findall(r'\d+', keras.__version__)[:2])
  first, last = _BROKEN
  if not first <= version <= last:
    logging.info(
      'Keras %s is not patched: only %d.%d to %d.%d are known to need it.',
      *(keras.__version__, *first, *last),
    )
    return False
  if _done:
    return False
  from keras.src.backend.tensorflow import trainer

  patched = trainer.TensorFlowTrainer
  patched._maybe_symbolic_build = _use_local_batches(
    patched._maybe_symbolic_build
  )
  trainer.reduce_per_replica = _average_scalars(trainer.reduce_per_replica)
  _done.append(True)
  return True


def _has_several_processes(strategy: tf.distribute.Strategy) -> bool:
  return (
    isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)
    and strategy.extended._in_multi_worker_mode()
  )


def _use_local_batches(build: Callable[..., Any]) -> Callable[..., Any]:
  """Wraps `_maybe_symbolic_build` to use the shapes of one replica."""

  @functools.wraps(build)
  def patched(self: keras.Model, *arguments: Any, **named: Any) -> Any:
    strategy = self.distribute_strategy
    if not _has_several_processes(strategy):
      return build(self, *arguments, **named)

    def first(reduce_op: Any, value: Any, axis: int | None) -> Any:
      del reduce_op, axis
      return keras.tree.map_structure(
        lambda v: strategy.experimental_local_results(v)[0], value
      )

    # While this attribute exists, it hides the method of the class.
    strategy.reduce = first
    try:
      return build(self, *arguments, **named)
    finally:
      del strategy.reduce

  return patched


def _average_scalars(
  reduce_per_replica: Callable[..., Any],
) -> Callable[..., Any]:
  """Wraps `reduce_per_replica` to average scalars over the replicas."""

  @functools.wraps(reduce_per_replica)
  def patched(
    values: Any, strategy: tf.distribute.Strategy, reduction: str
  ) -> Any:
    is_mean = reduction in ('auto', 'mean')
    if not (is_mean and _has_several_processes(strategy)):
      return reduce_per_replica(values, strategy, reduction)
    return keras.tree.map_structure(
      lambda value: strategy.reduce('MEAN', value, axis=None), values
    )

  return patched
