"""Gradient codec that applies one method to all variables of a model."""

from collections.abc import Iterable
from collections.abc import Sequence

from terngrad.codec import policy
from terngrad.codec.methods import registry
from terngrad.reduce import bucketing
from terngrad.reduce import gradients


def build(
  text: str, shapes: Iterable[Sequence[int]], num_workers: int
) -> gradients.GradientCodec:
  """Builds the codec, without native kernels.

  Args:
    text: method in the syntax of `--codec`.
    shapes: shapes of the variables.
    num_workers: number of workers that exchange gradients.

  Raises:
    ValueError: the text names no method.
  """
  code = registry.method(text, num_workers)
  specs = [
    policy.VariableSpec(f'v{i}', tuple(shape)) for i, shape in enumerate(shapes)
  ]
  return bucketing.gradient_codec(specs, [code] * len(specs))
