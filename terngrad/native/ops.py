"""The kernels as functions on tensors, in eager code and graphs; not under XLA.

They run on all of TensorFlow's own CPU threads. Results do not depend on the
number of threads, nor on the instruction set.
"""

from terngrad import native

# The most payloads that one call of `decode_sum` adds.
MAX_PAYLOADS = 16384


def statistics(gradients):
  """Standard deviation and largest magnitude of each gradient, in one pass.

  Sums run in float64, in blocks whose order the size alone fixes.

  Args:
    gradients: list of v float32, any shapes.

  Returns:
    Pair of float32 [v]; see `codec.statistics.Statistics`.
  """
  result = native.library().terngrad_statistics(gradients=gradients)
  return result.stddev, result.max_abs


def encode(pieces, sizes, limits, factors, key, radix):
  """Clips, scales, ternarizes and packs in one pass.

  Args:
    pieces: list of float32, the v variables, or one tensor with all of them.
    sizes: list of v int, their elements.
    limits: float32 [v], the largest magnitude; infinity clips nothing.
    factors: float32 [v], see `codec.ternary.factor`.
    key: uint32 [2].
    radix: 3 for the packing base3, 4 for two_bit.

  Returns:
    int32 [words].
  """
  return native.library().terngrad_encode(
    gradients=pieces,
    limits=limits,
    factors=factors,
    key=key,
    sizes=sizes,
    radix=radix,
  )


def decode_sum(parts, scalers, shapes, scale, radix):
  """Unpacks payloads, adds their codes and scales the sums, in one pass.

  Args:
    parts: list of int32 [n, words], see `codec.contract.Codec.decode_sum`.
    scalers: float32 [v].
    shapes: list of v static shapes.
    scale: Python float, multiplies after the scaler.
    radix: as in `encode`.

  Returns:
    List of v float32 of `shapes`.
  """
  return native.library().terngrad_decode_sum(
    parts=parts,
    scalers=scalers,
    V=len(shapes),
    shapes=shapes,
    scale=scale,
    radix=radix,
  )
