"""Sums of workers' payloads, checks of their length, and layouts of words."""

from collections.abc import Callable
from collections.abc import Sequence
from typing import TYPE_CHECKING
from typing import TypeAlias

import tensorflow as tf

from terngrad.codec.stages import transport

if TYPE_CHECKING:
  from terngrad.codec.stages import wire

# k planes, a list of [w] or one tensor [k, w]; or all elements [n].
Planes: TypeAlias = list[tf.Tensor] | tf.Tensor


def sum_planes(
  packing: 'wire.Packing | wire.VariablePacking | wire.CompositePacking',
  parts: Sequence[tf.Tensor],
  num_elements: int,
) -> tf.Tensor:
  """Unpacks payloads and adds them as one vector.

  Args:
    packing: of the payloads.
    parts: [n, w], as for `coded.Code.decode_sum`; int32, or float32 as in
      `transport`.
    num_elements: of the bucket.

  Returns:
    Of the packing's dtype, [num_elements or more], including positions past the
    end.

  Raises:
    ValueError: payloads do not have the length of a bucket of this size.
  """
  words = packing.num_words(num_elements)
  check_length(packing.name, words, parts, num_elements)
  return sum_unpacked(lambda row: packing.planes(row, num_elements), parts)


def sum_unpacked(
  unpack: Callable[[tf.Tensor], Planes], parts: Sequence[tf.Tensor]
) -> tf.Tensor:
  """Unpacks payloads and adds them as one vector.

  Payloads are unpacked one at a time and added in place, in the order of the
  workers. The memory does not depend on the number of workers, and floats have
  one order.

  Args:
    unpack: converts the words of one payload.
    parts: [n, w], as for `coded.Code.decode_sum`; int32, or float32 as in
      `transport`.
  """

  def add(
    sums: Planes, row: int | tf.Tensor, some: Sequence[tf.Tensor]
  ) -> Planes:
    for part in some:
      planes = unpack(transport.to_int32(part[row]))
      if isinstance(sums, list):
        sums = [_plus(a, b) for a, b in zip(sums, planes, strict=True)]
      else:
        sums = _plus(sums, planes)
    return sums

  counts = [part.shape[0] for part in parts]
  first = transport.to_int32(parts[0][0])
  sums = add(unpack(first), 0, parts[1:])
  if min(counts) > 1:
    _, sums = tf.while_loop(
      lambda row, _: row < min(counts),
      lambda row, sums: (row + 1, add(sums, row, parts)),
      (tf.constant(1), sums),
      parallel_iterations=1,
    )
  longer = [part for part in parts if part.shape[0] > min(counts)]
  return join(add(sums, min(counts), longer))


def check_length(
  name: str, num_words: int, parts: Sequence[tf.Tensor], num_elements: int
) -> None:
  """Raises ValueError if payloads do not have the words of their bucket.

  Args:
    name: of the packing.
    num_words: of a payload.
    parts: list of int32 [n, w], payloads.
    num_elements: of the bucket.
  """
  if any(len(part.shape) != 2 for part in parts):
    raise ValueError(
      f'{name}: expected a list of int32 [payloads, words], received '
      f'{[list(part.shape) for part in parts]}. Stack the payloads of a '
      'device, and put the stacks of all devices into a list.'
    )
  for part in parts:
    if part.shape[1] not in (num_words, None):
      raise ValueError(
        f'{name}: expected payloads of {num_words} words for '
        f'{num_elements} elements, received {part.shape[1]}. They are '
        'incomplete or from another bucket.'
      )


def _plus(sums: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
  """Adds in a way that TensorFlow does not reorder.

  The graph optimizer merges several additions to one `AddN` and reorders its
  inputs. It does not merge additions separated by a shape check.
  """
  return tf.ensure_shape(sums + values, sums.shape)


def concat(parts: Sequence[tf.Tensor], axis: int = 0) -> tf.Tensor:
  """Concatenates tensors; a single one is not copied."""
  return parts[0] if len(parts) == 1 else tf.concat(parts, axis=axis)


def join(planes: Planes) -> tf.Tensor:
  """Returns the elements of planes, k [w] or one [k, w], as one [k * w]."""
  if isinstance(planes, list):
    return tf.concat(planes, axis=0)
  return tf.reshape(planes, [-1])


def pack_bytes(numbers: tf.Tensor) -> tf.Tensor:
  """Packs bytes to words, the first in the lowest bits.

  Args:
    numbers: int32 [n] below 256.

  Returns:
    int32 [ceil(n / 4)]; bytes past the last are 0.
  """
  quads = tf.reshape(tf.pad(numbers, [[0, -numbers.shape[0] % 4]]), [-1, 4])
  return tf.reduce_sum(tf.bitwise.left_shift(quads, [0, 8, 16, 24]), axis=1)


def unpack_bytes(words: tf.Tensor) -> tf.Tensor:
  """Inverts `pack_bytes`: returns int32 [4 w] of int32 [w]."""
  quads = tf.bitcast(words[:, tf.newaxis], tf.uint32)
  quads = tf.bitwise.right_shift(quads, tf.constant([0, 8, 16, 24], tf.uint32))
  return tf.reshape(
    tf.bitwise.bitwise_and(tf.bitcast(quads, tf.int32), 255), [-1]
  )
