"""The layout of a bucket's elements in planes.

The elements of a bucket are dealt to words in planes. With `k` elements in a
word and `w` words, plane `p` holds the elements `p * w` to `(p + 1) * w - 1`
and fills place `p` of every word, so that packing is elementwise work on whole
planes. The places past the end hold the code zero, or where a packing has none
its `fill`, and nothing reads them.
"""

import tensorflow as tf


def sum_planes(packing, parts, num_elements):
  """Sums what payloads unpack to, as one vector of `packing`'s places.

  Payloads are unpacked one at a time and added in place in the order of the
  workers, so that memory does not grow with them and floats have one order.

  Args:
    packing: `wire.Packing` or `wire.VariablePacking`.
    parts: list of int32 [n, w], see `contract.Codec.decode_sum`.
    num_elements: of the bucket.

  Returns:
    Of the packing's dtype, [num_elements] and the places past the end.
  """

  def add(sums, row, some):
    for part in some:
      planes = packing.planes(part[row], num_elements)
      if isinstance(sums, list):
        sums = [_plus(a, b) for a, b in zip(sums, planes, strict=True)]
      else:
        sums = _plus(sums, planes)
    return sums

  counts = [part.shape[0] for part in parts]
  sums = add(packing.planes(parts[0][0], num_elements), 0, parts[1:])
  if min(counts) > 1:
    _, sums = tf.while_loop(
      lambda row, _: row < min(counts),
      lambda row, sums: (row + 1, add(sums, row, parts)),
      (tf.constant(1), sums),
      parallel_iterations=1,
    )
  longer = [part for part in parts if part.shape[0] > min(counts)]
  return join(add(sums, min(counts), longer))


def _plus(sums, values):
  """The sum, which TensorFlow must not join with others in another order.

  Its graph optimizer makes one `AddN` of several additions, whose inputs it
  reorders. It sees no additions in what has had its shape checked.
  """
  return tf.ensure_shape(sums + values, sums.shape)


def join(planes):
  """The elements of planes, a list of [w] or one tensor [k, w], as [k * w]."""
  if isinstance(planes, list):
    return tf.concat(planes, axis=0)
  return tf.reshape(planes, [-1])


def plane(flat, place, width):
  """Elements `place * width` onwards, float32 [width], zeros past the end."""
  size = flat.shape.num_elements()
  start = min(place * width, size)
  stop = min(start + width, size)
  values = flat[start:stop]
  missing = width - (stop - start)
  return tf.pad(values, [[0, missing]]) if missing else values


def spread(values, sizes, place, width):
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
  pieces = []
  start, stop = place * width, min((place + 1) * width, sum(sizes))
  end = 0
  for i, size in enumerate(sizes):
    begin, end = end, end + size
    count = min(stop, end) - max(start, begin)
    if count > 0:
      pieces.append([i, count])
  if not pieces:
    return tf.constant(0.0)
  if len(pieces) == 1:
    return values[pieces[0][0]]
  pieces[-1][1] += width - (stop - start)
  return tf.concat([tf.fill([n], values[i]) for i, n in pieces], axis=0)


def spread_groups(values, sizes, group_size):
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
