"""The repair of stock Keras under `MultiWorkerMirroredStrategy`.

`fit` of Keras 3 fails there twice, with any optimizer. Before the first step it
takes the mean over the replicas of a whole batch, to learn its shapes, which
this strategy refuses. And it reduces each metric along an axis that a scalar
does not have.
"""

import functools
import re
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf
from absl import logging

# In which both have been seen, first and last.
_BROKEN = (3, 5), (3, 15)
_done: list[bool] = []


def repair_multi_worker() -> bool:
  """Lets `fit`, `evaluate` and `predict` work on several processes.

  To be called once, before the first of them; it changes what Keras does under
  `MultiWorkerMirroredStrategy` of several processes, and nothing else.

  Returns:
    Whether Keras was changed: False where it was already, or where it is
    of a version that is not known to need it, which the log says.
  """
  version = tuple(int(n) for n in re.findall(r'\d+', keras.__version__)[:2])
  first, last = _BROKEN
  if not first <= version <= last:
    logging.info(
      'Keras %s is not among those that need a repair, %d.%d to %d.%d.',
      *(keras.__version__, *first, *last),
    )
    return False
  if _done:
    return False
  from keras.src.backend.tensorflow import trainer

  whole = trainer.TensorFlowTrainer
  whole._maybe_symbolic_build = _with_local_batches(whole._maybe_symbolic_build)
  trainer.reduce_per_replica = _with_scalars(trainer.reduce_per_replica)
  _done.append(True)
  return True


def _is_of_several_processes(strategy: tf.distribute.Strategy) -> bool:
  return (
    isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)
    and strategy.extended._in_multi_worker_mode()
  )


def _with_local_batches(build: Callable[..., Any]) -> Callable[..., Any]:
  """`_maybe_symbolic_build`, which looks at shapes of one replica."""

  @functools.wraps(build)
  def repaired(self: keras.Model, *arguments: Any, **named: Any) -> Any:
    strategy = self.distribute_strategy
    if not _is_of_several_processes(strategy):
      return build(self, *arguments, **named)

    def first(reduce_op: Any, value: Any, axis: int | None) -> Any:
      del reduce_op, axis
      return keras.tree.map_structure(
        lambda v: strategy.experimental_local_results(v)[0], value
      )

    # An attribute of the instance hides the method, as long as it is there.
    strategy.reduce = first
    try:
      return build(self, *arguments, **named)
    finally:
      del strategy.reduce

  return repaired


def _with_scalars(
  reduce_per_replica: Callable[..., Any],
) -> Callable[..., Any]:
  """`reduce_per_replica`, which takes means of scalars over the replicas."""

  @functools.wraps(reduce_per_replica)
  def repaired(
    values: Any, strategy: tf.distribute.Strategy, reduction: str
  ) -> Any:
    is_mean = reduction in ('auto', 'mean')
    if not (is_mean and _is_of_several_processes(strategy)):
      return reduce_per_replica(values, strategy, reduction)
    return keras.tree.map_structure(
      lambda value: strategy.reduce('MEAN', value, axis=None), values
    )

  return repaired
