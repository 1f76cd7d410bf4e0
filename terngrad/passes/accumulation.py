"""Gradient accumulation: a worker computes its batch in sequential parts."""

from typing import Any

import tensorflow as tf

from terngrad.codec.stages import random_bits
from terngrad.step import passes

# Part i folds this number + i into the worker's key. Codes fold in the index of
# a bucket, and dropout folds in negative numbers.
_FIRST_KEY = 2**30


def accumulate(node_pass: passes.Pass, count: int) -> passes.Pass:
  """Makes a pass that computes a worker's batch in `count` equal parts.

  Args:
    node_pass: of a part.
    count: >= 1; must divide the worker's batch size. 1 returns `node_pass`.
  """
  return node_pass if count == 1 else AccumulatedPass(node_pass, count)


class AccumulatedPass(passes.WrappedPass):
  """Averages gradients, scores and new statistics over equal parts of a batch.

  The parts are added in order. Without batch normalization the gradient is that
  of the whole batch up to rounding; batch normalization sees one part at a
  time. The loop holds the activations of one part and one more copy of the
  gradients.
  """

  def __init__(self, node_pass: passes.Pass, count: int) -> None:
    """Stores the pass of a part and the number of parts."""
    super().__init__(node_pass)
    self._count = count

  def gradients(
    self,
    parameters: list[tf.Tensor],
    non_trainable: list[tf.Tensor],
    images: tf.Tensor,
    labels: tf.Tensor,
    key: tf.Tensor,
    scale: tf.Tensor | None = None,
  ) -> tuple[list[tf.Tensor], tf.Tensor, list[tf.Tensor]]:
    """Averages the results of all parts; see `passes.Pass.gradients`."""
    count = self._count
    images, labels = parts_of(count, images, labels)

    def add(
      number: tf.Tensor, sums: list[tf.Tensor]
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
      results, scores, moments = self._node_pass.gradients(
        parameters,
        non_trainable,
        images[number],
        labels[number],
        part_key(key, number),
        scale,
      )
      values = [*results, scores, *moments]
      return number + 1, [
        total + value for total, value in zip(sums, values, strict=True)
      ]

    moments = non_trainable[: self.num_statistics]
    scores = tf.zeros([passes.NUM_SCORES])
    shapes = [t.shape for t in (*parameters, scores, *moments)]
    _, sums = tf.while_loop(
      lambda number, _: number < count,
      add,
      (tf.constant(0), [tf.zeros(shape) for shape in shapes]),
      parallel_iterations=1,
    )
    means = [total * (1.0 / count) for total in sums]
    size = len(parameters)
    return means[:size], means[size], means[size + 1 :]


def parts_of(count: int, *examples: Any) -> list[Any]:
  """Reshapes tensors [b, ...] to [count, b / count, ...], also in lists."""

  def reshape(t: tf.Tensor) -> tf.Tensor:
    return tf.reshape(t, [count, t.shape[0] // count, *t.shape[1:]])

  return [tf.nest.map_structure(reshape, item) for item in examples]


def part_key(key: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
  """Derives the random key of a part, uint32 [2], from the worker's key."""
  return random_bits.fold_in(key, _FIRST_KEY + number)
