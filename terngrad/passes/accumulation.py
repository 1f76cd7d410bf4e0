"""Gradient accumulation: a node's share in parts, one after the other."""

import tensorflow as tf

from terngrad.codec.stages import random_bits
from terngrad.step import passes

# Folded into a node's key, from here on. Codes fold in the index of a bucket,
# dropout negative numbers.
_FIRST_KEY = 2**30


def accumulated(node_pass: passes.Pass, count: int) -> passes.Pass:
  """A pass that computes a node's share in `count` equal parts.

  Args:
    node_pass: of a part.
    count: parts, >= 1; must divide the share. 1 gives `node_pass`.
  """
  return node_pass if count == 1 else Accumulated(node_pass, count)


class Accumulated(passes.Pass):
  """Gradients, scores and new statistics as the means over equal parts.

  They are added in the order of the parts: the gradient is that of the whole
  share up to rounding where the net has no batch normalisation, which here sees
  a part at a time. The loop holds the activations of one part and one more copy
  of the gradients.
  """

  def __init__(self, node_pass: passes.Pass, count: int) -> None:
    """Takes the pass of a part, and how many there are."""
    super().__init__(
      node_pass.num_statistics, node_pass.decay, node_pass.decoupled_decay
    )
    self._node_pass = node_pass
    self._count = count

  def gradients(
    self,
    parameters: list[tf.Tensor],
    held: list[tf.Tensor],
    images: tf.Tensor,
    labels: tf.Tensor,
    key: tf.Tensor,
    scale: tf.Tensor | None = None,
  ) -> tuple[list[tf.Tensor], tf.Tensor, list[tf.Tensor]]:
    """See `passes.Pass.gradients`."""
    count = self._count
    images, labels = parts_of(count, images, labels)

    def add(
      number: tf.Tensor, sums: list[tf.Tensor]
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
      results, scores, moments = self._node_pass.gradients(
        parameters,
        held,
        images[number],
        labels[number],
        part_key(key, number),
        scale,
      )
      values = [*results, scores, *moments]
      return number + 1, [
        total + value for total, value in zip(sums, values, strict=True)
      ]

    moments = held[: self.num_statistics]
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


def parts_of(count: int, *tensors: tf.Tensor) -> list[tf.Tensor]:
  """Tensors [b, ...] as [count, b / count, ...]."""
  return [
    tf.reshape(t, [count, t.shape[0] // count, *t.shape[1:]]) for t in tensors
  ]


def part_key(key: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
  """The uint32 [2] key of a part of a node's share, from the node's."""
  return random_bits.fold_in(key, _FIRST_KEY + number)
