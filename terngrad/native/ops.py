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


def encode(pieces, sizes, limits, factors, key, digits):
  """Clips, scales, ternarizes and packs in one pass.

  Args:
    pieces: list of float32, the v variables, or one tensor with all of them.
    sizes: list of v int, their elements.
    limits: float32 [v], the largest magnitude; infinity clips nothing.
    factors: float32 [v], see `codec.ternary.factor`.
    key: uint32 [2] for `codec.ternary.quantize`'s codes, uint32 [3] for those
      of `quantize_in_strata`.
    digits: pair of int, the base of a word's digits, >= 3, and their number;
      (3, 20) for the packing base3, (4, 16) for two_bit.

  Returns:
    int32 [words].
  """
  return native.library().terngrad_encode(
    gradients=pieces,
    limits=limits,
    factors=factors,
    key=key,
    sizes=sizes,
    radix=digits[0],
    places=digits[1],
  )


def decode_sum(parts, scalers, shapes, scale, digits):
  """Unpacks payloads, adds their codes and scales the sums, in one pass.

  Args:
    parts: list of int32 [n, words], see `codec.contract.Codec.decode_sum`.
    scalers: float32 [v].
    shapes: list of v static shapes.
    scale: Python float, multiplies after the scaler.
    digits: (3, 20) or (4, 16).

  Returns:
    List of v float32 of `shapes`.
  """
  return native.library().terngrad_decode_sum(
    parts=parts,
    scalers=scalers,
    V=len(shapes),
    shapes=shapes,
    scale=scale,
    radix=digits[0],
    places=digits[1],
  )
