"""The layout of a bucket's elements in planes.

The elements of a bucket are dealt to words in planes. With `k` elements in a
word and `w` words, plane `p` holds the elements `p * w` to `(p + 1) * w - 1`
and fills place `p` of every word, so that packing is elementwise work on whole
planes. The places past the end hold the code zero, or where a packing has none
its `fill`, and nothing reads them.
"""

import itertools
from collections.abc import Sequence

import tensorflow as tf


def plane(flat: tf.Tensor, place: int, width: int) -> tf.Tensor:
  """Elements `place * width` onwards, float32 [width], zeros past the end."""
  size = flat.shape.num_elements()
  start = min(place * width, size)
  stop = min(start + width, size)
  values = flat[start:stop]
  missing = width - (stop - start)
  return tf.pad(values, [[0, missing]]) if missing else values


def spread(
  values: tf.Tensor, sizes: Sequence[int], place: int, width: int
) -> tf.Tensor:
  """Each variable's value for the elements of a plane.

  Args:
    values: float32 [v].
    sizes: list of v int, the elements of each variable.
    place: of the plane.
    width: elements of a plane.

  Returns:
    float32 [] where the plane lies in one variable, as most do in a net whose
    elements are in a few large ones; else float32 [width].
  """
  start, stop = place * width, min((place + 1) * width, sum(sizes))
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
  """Each group's value for its elements.

  Args:
    values: float32 [p], of the groups of each variable.
    sizes: list of v int, the elements of each variable.
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
