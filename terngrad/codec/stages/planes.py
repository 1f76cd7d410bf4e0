"""The layout of a bucket's elements in planes.

With `k` elements per word and `w` words, plane `p` consists of the elements
`p * w` to `(p + 1) * w - 1`. It fills digit `p` of every word, so that packing
is an elementwise operation on whole planes. Positions past the end hold the
code zero, or the `fill` of a packing without zero, and are never read.
"""

import itertools
from collections.abc import Sequence

import tensorflow as tf


def plane(flat: tf.Tensor, index: int, width: int) -> tf.Tensor:
  """Returns plane `index`, float32 [width], with zeros past the end."""
  size = flat.shape.num_elements()
  start = min(index * width, size)
  stop = min(start + width, size)
  values = flat[start:stop]
  missing = width - (stop - start)
  return tf.pad(values, [[0, missing]]) if missing else values


def spread(
  values: tf.Tensor, sizes: Sequence[int], index: int, width: int
) -> tf.Tensor:
  """Returns each variable's value for the elements of a plane.

  Args:
    values: float32 [v].
    sizes: elements of each of the v variables.
    index: index of the plane.
    width: elements of a plane.

  Returns:
    float32 [] if the plane lies in one variable, as most do in a model with a
    few large variables; float32 [width] otherwise.
  """
  start, stop = index * width, min((index + 1) * width, sum(sizes))
  counts = [
    min(stop, end) - max(start, end - size)
    for size, end in zip(sizes, itertools.accumulate(sizes), strict=True)
  ]
  pieces = [[i, count] for i, count in enumerate(counts) if count > 0]
  if not pieces:
    return tf.constant(0.0)
  if len(pieces) == 1:
    return values[pieces[0][0]]
  pieces[-1][1] += width - (stop - start)
  return tf.concat([tf.fill([n], values[i]) for i, n in pieces], axis=0)


def spread_groups(
  values: tf.Tensor, sizes: Sequence[int], group_size: int
) -> tf.Tensor:
  """Returns each group's value for its elements.

  Args:
    values: float32 [p], of the groups of each variable.
    sizes: elements of each of the v variables.
    group_size: elements of a group; a variable's last may have fewer.

  Returns:
    float32 [sum of sizes].
  """
  counts = [max(1, -(-size // group_size)) for size in sizes]
  spread = []
  for part, size, count in zip(
    tf.split(values, counts), sizes, counts, strict=True
  ):
    rows = tf.broadcast_to(part[:, tf.newaxis], [count, group_size])
    spread.append(tf.reshape(rows, [-1])[:size])
  return tf.concat(spread, axis=0)
