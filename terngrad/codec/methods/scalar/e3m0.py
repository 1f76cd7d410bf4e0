"""4-bit floats of a sign and three exponent bits, E3M0.

Douillard et al., Streaming DiLoCo with Overlapping Communication, 2025,
https://arxiv.org/abs/2501.18512, section 2, on the precision of the outer
gradients: the workers send their outer gradients as E3M0 and add them as
float32. The paper gives neither a scale nor a bias.

Here an element is 0 or one of seven powers of two, from 1 down to 1/64 of the
scale, with a sign. Each group has a scale, the power of two nearest to its
largest magnitude; magnitudes above it, at most 1.5 times the scale, become the
scale. Others are rounded to nearest, ties to the even exponent code; below
1/128 of the scale they become 0. Groups of 512 elements are this project's
default. The sum over workers is float32, in the order
of the workers. Use error feedback if the exchanged gradients are not outer
gradients of many local steps: the rounding error of an element is up to a third
of it.
"""

import tensorflow as tf

from terngrad.codec.methods.scalar import small_floats

# 1.0 is the largest value, so that the scale is that of the largest magnitude.
FORMAT = small_floats.Format(bits=4, mantissa=0, bias=7, largest=7)


class E3m0(small_floats.SmallFloats):
  """Signed powers of two and zero, in 4 bits."""

  traits = small_floats.SmallFloats.traits._replace(dense=True)

  def __init__(self, group_size: int = 512) -> None:
    """Creates the code.

    Args:
      group_size: elements that share a scale, 32 bits; 0 for a whole variable.

    Raises:
      ValueError: the size is negative.
    """
    super().__init__(f'e3m0({group_size})', FORMAT, group_size)

  def scales_of(self, span: tf.Tensor) -> tf.Tensor:
    """Returns the power of two nearest to the largest magnitude."""
    return small_floats.power_of_two(span, 0x3FFFFF)
