"""The layout of a bucket's elements in planes.

With `k` elements per word and `w` words, plane `p` consists of the elements
`p * w` to `(p + 1) * w - 1`. It fills digit `p` of every word, so that packing
is an elementwise operation on whole planes. Positions past the end hold the
code zero, or the `fill` of a packing without zero, and are never read.
"""

import itertools
from collections.abc import Sequence

import tensorflow as tf


def split(flat: tf.Tensor, count: int, width: int) -> list[tf.Tensor]:
  """Returns the planes of a bucket's elements, with zeros past the end.

  Args:
    flat: [n], any dtype.
    count: number of planes, k.
    width: elements of a plane, w, with k w >= n.

  Returns:
    k tensors [w].
  """
  whole, rest = divmod(flat.shape.num_elements(), max(1, width))
  if whole == count:
    return tf.split(flat, count)
  *pieces, last = tf.split(flat, [width] * whole + [rest])
  zeros = [tf.zeros([width], flat.dtype)] * (count - whole - 1)
  return [*pieces, tf.pad(last, [[0, width - rest]]), *zeros]


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
