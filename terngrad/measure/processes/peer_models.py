"""PyTorch modules and losses for `peer_process`, which loads this file."""

from collections.abc import Callable
from collections.abc import Mapping

# PyTorch is optional: it is imported on use, and its types are unknown.
from typing import Any


def make(
  nets: Mapping[str, Any],
  net: str,
  shapes: list[list[int]],
  example: tuple[int, ...],
  classes: int,
  batch: int,
  seed: int,
) -> tuple[Any, Callable[[Any], Any]]:
  """Returns (a module, a function that maps the module to its loss).

  Args:
    nets: the functions of `peer_nets`, by name.
    net: name of one of them; '' for fixed gradients.
    shapes: shapes of the fixed gradients.
    example: height, width and channels of an image, or the number of tokens of
      a text.
    classes: number of logits.
    batch: examples in each step.
    seed: seed of the examples.
  """
  import torch

  if not net:
    return _fixed_gradients(shapes), lambda model: model()
  generator = torch.Generator().manual_seed(seed)
  entropy = torch.nn.functional.cross_entropy
  if len(example) == 1:
    shape = batch, example[0] + 1
    tokens = torch.randint(0, classes, shape, generator=generator)
    inputs, labels = tokens[:, :-1], tokens[:, 1:].flatten()
  else:
    height, width, channels = example
    inputs = torch.randn(batch, channels, height, width, generator=generator)
    labels = torch.randint(0, classes, (batch,), generator=generator)
  return nets[net](classes), lambda model: entropy(
    model(inputs).flatten(0, -2), labels
  )


def _fixed_gradients(shapes: list[list[int]]) -> Any:
  """Returns a module whose backward pass gives fixed Gaussian gradients."""
  import torch

  class FixedGradients(torch.autograd.Function):
    """Computes zero, with fixed gradients."""

    @staticmethod
    def forward(ctx: Any, drawn: list[Any], *parameters: Any) -> Any:
      ctx.drawn = drawn
      return parameters[0].new_zeros([])

    @staticmethod
    def backward(ctx: Any, upstream: Any) -> tuple[Any, ...]:
      return (None, *ctx.drawn)

  class Module(torch.nn.Module):
    """A module with parameters of the given shapes."""

    def __init__(self) -> None:
      super().__init__()
      self.variables = torch.nn.ParameterList(
        torch.nn.Parameter(torch.zeros(s)) for s in shapes
      )
      self.drawn = [torch.randn(s) for s in shapes]

    def forward(self) -> Any:
      return FixedGradients.apply(self.drawn, *self.variables)

  return Module()
