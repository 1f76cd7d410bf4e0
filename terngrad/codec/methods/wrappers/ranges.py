"""Cuts variables into consecutive ranges, one for each worker.

A range of a variable of n elements has ceil(n / workers) elements; the last
ranges are padded with zeros.
"""

from collections.abc import Sequence

import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.codec.stages import wire


def check(method: methods.Method) -> None:
  """Raises ValueError for a method that cannot encode ranges."""
  shapes = ((8, 8),)
  rounds = method.messages(shapes)
  if len(rounds) > 1 or method.finishes or method.states(shapes):
    raise ValueError(
      'bidirectional: expected a codec with one round and no state, received '
      f'{method.name}. Put error_feedback+ or momentum+ before '
      'bidirectional+, and use no method with several rounds.'
    )
  if method.carries:
    raise ValueError(
      'bidirectional: expected a codec that encodes after the workers agree '
      f'on the probe, received {method.name}. Remove sharing=requantize.'
    )
  if any(isinstance(m.packing, wire.VariablePacking) for m in rounds[0]):
    raise ValueError(
      'bidirectional: expected payloads of fixed length, received '
      f'{method.name}. Remove its packing option or choose another codec.'
    )


def width(size: int, workers: int) -> int:
  """Returns the number of elements in a range of a variable."""
  return -(-size // workers)


def cut(gradients: methods.Tensors, workers: int) -> list[tf.Tensor]:
  """Cuts a list of float32 [n] into a list of [workers, width]."""
  rows = []
  for values in gradients:
    columns = width(values.shape[0], workers)
    missing = workers * columns - values.shape[0]
    # No copy without padding.
    values = tf.pad(values, [[0, missing]]) if missing else values
    rows.append(tf.reshape(values, [workers, columns]))
  return rows


def join(rows: methods.Tensors, sizes: Sequence[int]) -> list[tf.Tensor]:
  """Joins a list of [workers, width] to a list of float32 [n]; undoes `cut`."""
  pairs = zip(rows, sizes, strict=True)
  return [tf.reshape(values, [-1])[:size] for values, size in pairs]


def clear_padding(
  values: methods.Tensors,
  number: tf.Tensor,
  sizes: Sequence[int],
  workers: int,
) -> list[tf.Tensor]:
  """Returns a range, list of [width], zeroed past the ends of variables."""
  found = []
  for row, size in zip(values, sizes, strict=True):
    count = width(size, workers)
    # TensorFlow wraps a larger Python integer beside an int32 tensor.
    dtype = tf.int32 if count * workers <= tf.int32.max else tf.int64
    places = tf.cast(number, dtype) * count + tf.range(count, dtype=dtype)
    found.append(tf.where(places < size, row, 0.0))
  return found


def probes_of_all(probes: tf.Tensor, counts: Sequence[int]) -> tf.Tensor:
  """Orders the probes of all ranges by variable.

  Args:
    probes: float32 [workers, p]; a row is the probe of a range, variable by
      variable.
    counts: how many of the p numbers belong to each variable.

  Returns:
    float32 [workers * p]: for each variable the numbers of all ranges.
  """
  parts = tf.split(probes, counts, axis=1)
  return tf.concat([tf.reshape(part, [-1]) for part in parts], axis=0)


def probes_of(
  probes: tf.Tensor, number: tf.Tensor, counts: Sequence[int], workers: int
) -> tf.Tensor:
  """Selects the probe of one range, float32 [p], from `probes_of_all`."""
  parts = tf.split(probes, [workers * count for count in counts])
  rows = [tf.reshape(part, [workers, -1])[number] for part in parts]
  return tf.concat(rows, axis=0)
