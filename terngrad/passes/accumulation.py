"""Gradient accumulation: a node's share in parts, one after the other."""

import tensorflow as tf

from terngrad.codec.stages import random_bits
from terngrad.step import passes

# Folded into a node's key, from here on. Codes fold in the index of a bucket,
# dropout negative numbers.
_FIRST_KEY = 2**30


def accumulated(node_pass, count):
  """A pass that computes a node's share in `count` equal parts.

  Gradients, scores and new statistics are the means over the parts, added in
  their order: the gradient is that of the whole share up to rounding where the
  net has no batch normalisation, which here sees a part at a time. The loop
  holds the activations of one part and one more copy of the gradients.

  Args:
    node_pass: `passes.Pass`.
    count: parts, >= 1; must divide the share. 1 gives `node_pass`.

  Returns:
    A `passes.Pass`.
  """
  if count == 1:
    return node_pass

  def run(parameters, held, images, labels, key, scale=None):
    images, labels = parts_of(count, images, labels)

    def part(number):
      results, scores, moments = node_pass.gradients(
        parameters,
        held,
        images[number],
        labels[number],
        part_key(key, number),
        scale,
      )
      return [*results, scores, *moments]

    def add(number, sums):
      values = part(number)
      return number + 1, [
        total + value for total, value in zip(sums, values, strict=True)
      ]

    moments = held[: node_pass.num_statistics]
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

  return node_pass._replace(gradients=run)


def parts_of(count, *tensors):
  """Tensors [b, ...] as [count, b / count, ...], a list."""
  return [
    tf.reshape(t, [count, t.shape[0] // count, *t.shape[1:]]) for t in tensors
  ]


def part_key(key, number):
  """The uint32 [2] key of a part of a node's share, from the node's."""
  return random_bits.fold_in(key, _FIRST_KEY + number)
