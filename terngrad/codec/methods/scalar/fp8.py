"""8-bit floats, with a power of two as the scale of each group.

Micikevicius et al., FP8 Formats for Deep Learning, 2022,
https://arxiv.org/abs/2209.05433: e4m3, which has no infinity and a maximum of
448, and e5m2, with a maximum of 57344. Departure: each group has a separate
scale, which maps its largest magnitude to the upper half of the range.
"""

import tensorflow as tf

from terngrad.codec.methods import by_variable
from terngrad.codec.methods import grouped
from terngrad.codec.methods.scalar import small_floats
from terngrad.native import grouped_ops

FORMATS = {
  'e4m3': small_floats.Format(bits=8, mantissa=3, bias=7, largest=0x7E),
  'e5m2': small_floats.Format(bits=8, mantissa=2, bias=15, largest=0x7B),
}


class Fp8(small_floats.SmallFloats):
  """8-bit floats, rounded to nearest, ties to even."""

  traits = by_variable.DETERMINISTIC._replace(rounds=True, dense=True)

  def __init__(self, kind: str = 'e4m3', group_size: int = 512) -> None:
    """Creates the code.

    Args:
      kind: 'e4m3' or 'e5m2'.
      group_size: elements that share a scale, 32 bits; 0 for a whole variable.

    Raises:
      ValueError: an option is out of its range.
    """
    if kind not in FORMATS:
      raise ValueError(
        f'kind: expected one of {", ".join(FORMATS)}, received {kind!r}. Use '
        'e4m3, or e5m2 for gradients of very different magnitudes.'
      )
    form = FORMATS[kind]
    super().__init__(f'fp8({kind}, {group_size})', form, group_size)
    self.kernels = grouped_ops.GroupedCode(
      grouped_ops.FLOATS, form.largest, 256, 4, group_size
    )

  def scales_of(self, span: tf.Tensor) -> tf.Tensor:
    """Returns scales of which no group exceeds the range."""
    return small_floats.power_of_two(span * (1.0 / self.largest), 0x7FFFFF)


class _Fp8OnGpus(grouped.GroupedOnKernels, Fp8, twin_of=Fp8):
  """`Fp8` with GPU kernels."""

  _is_for_cpus = False
