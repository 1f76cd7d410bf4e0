"""PyTorch modules with the same layers as nets of this package."""

import functools

# PyTorch is optional: it is imported on use, and its types are unknown.
from typing import Any


def alexnet(classes: int) -> Any:
  """Builds the net of `exchanges.single_column_alexnet`."""
  from torch import nn

  def conv(*sizes: int) -> tuple[Any, Any]:
    return nn.Conv2d(*sizes, padding='same'), nn.ReLU()

  def dense(*sizes: int) -> tuple[Any, Any]:
    return nn.Linear(*sizes), nn.ReLU()

  return nn.Sequential(
    *(nn.Conv2d(3, 64, 11, 4, 2), nn.ReLU(), nn.MaxPool2d(3, 2)),
    *(*conv(64, 192, 5), nn.MaxPool2d(3, 2)),
    *(*conv(192, 384, 3), *conv(384, 256, 3), *conv(256, 256, 3)),
    *(nn.MaxPool2d(3, 2), nn.Flatten()),
    *(*dense(9216, 4096), *dense(4096, 4096), nn.Linear(4096, classes)),
  )


def resnet_v1_50(classes: int) -> Any:
  """Builds `resnet_v1_50` of `slim.nets`, which strides in a block's last unit.

  He et al., Deep Residual Learning, https://arxiv.org/abs/1512.03385, table 1.
  """
  from torch import nn

  class AddRelu(nn.Module):
    """The ReLU of the sum of two branches."""

    def __init__(self, branch: Any, shortcut: Any) -> None:
      super().__init__()
      self.branch, self.shortcut = branch, shortcut

    def forward(self, x: Any) -> Any:
      return nn.functional.relu(self.branch(x) + self.shortcut(x))

  def conv(
    before: int, after: int, size: int, stride: int = 1
  ) -> tuple[Any, Any]:
    # No bias, as in slim's convolutions with batch normalization.
    return (
      nn.Conv2d(before, after, size, stride, size // 2, bias=False),
      nn.BatchNorm2d(after),
    )

  def unit(before: int, width: int, stride: int) -> Any:
    after = 4 * width
    branch = nn.Sequential(
      *(*conv(before, width, 1), nn.ReLU()),
      *(*conv(width, width, 3, stride), nn.ReLU()),
      *conv(width, after, 1),
    )
    shortcut = nn.MaxPool2d(1, stride)
    if before != after:
      shortcut = nn.Sequential(*conv(before, after, 1, stride))
    return AddRelu(branch, shortcut)

  layers = [*conv(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
  before = 64
  for width, units, stride in (
    (64, 3, 2),
    (128, 4, 2),
    (256, 6, 2),
    (512, 3, 1),
  ):
    for last in (*[1] * (units - 1), stride):
      layers.append(unit(before, width, last))
      before = 4 * width
  return nn.Sequential(
    *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes)
  )


def gpt_nano(classes: int) -> Any:
  """Builds `gpt_nano` of `slim.nets`."""
  return _gpt(classes, blocks=5, width=128, heads=4)


def gpt_small(classes: int) -> Any:
  """Builds `gpt_small` of `slim.nets`."""
  return _gpt(classes, blocks=8, width=512, heads=8)


def _gpt(classes: int, blocks: int, width: int, heads: int) -> Any:
  """Builds the transformer of `slim.nets.gpt`, without its initial weights.

  It maps tokens int64 [B, T] to logits float32 [B, T, classes]. The order of
  its parameters is that of the Keras model.
  """
  from torch import nn

  class Branch(nn.Module):
    """Normalizes, applies two layers with something between, and adds."""

    def __init__(self, inner: int, outer: int, between: Any) -> None:
      super().__init__()
      self.norm = nn.RMSNorm(width, eps=1e-6)
      self.inner = nn.Linear(width, inner, bias=False)
      self.outer = nn.Linear(outer, width, bias=False)
      self.between = between

    def forward(self, x: Any) -> Any:
      return x + self.outer(self.between(self.inner(self.norm(x))))

  class Transformer(nn.Module):
    """The blocks between two uses of the embedding."""

    def __init__(self) -> None:
      super().__init__()
      self.embedding = nn.Embedding(classes, width)
      nn.init.normal_(self.embedding.weight, std=0.02)
      attend = functools.partial(_attend, heads)
      self.blocks = nn.Sequential()
      for _ in range(blocks):
        self.blocks.append(Branch(3 * width, width, attend))
        self.blocks.append(Branch(4 * width, 4 * width, _squared_relu))
      self.norm = nn.RMSNorm(width, eps=1e-6)

    def forward(self, tokens: Any) -> Any:
      x = self.norm(self.blocks(self.embedding(tokens)))
      return nn.functional.linear(x, self.embedding.weight)

  return Transformer()


def _squared_relu(x: Any) -> Any:
  return x.relu() ** 2


def _attend(heads: int, x: Any) -> Any:
  """Causal attention of float32 [B, T, 3 * width], without weights."""
  from torch.nn import functional

  batch, length, triple = x.shape
  size = triple // 3 // heads
  # Each [B, heads, T, size].
  query, key, value = x.view(batch, length, 3, heads, size).permute(
    2, 0, 3, 1, 4
  )
  turns = _turns(length, size // 2)
  found = functional.scaled_dot_product_attention(
    _rotate(query, *turns), _rotate(key, *turns), value, is_causal=True
  )
  return found.transpose(1, 2).reshape(batch, length, heads * size)


@functools.cache
def _turns(length: int, half: int) -> tuple[Any, Any]:
  """Returns cosines and sines of all positions' angles, [T, half] each."""
  import torch

  rates = 10000.0 ** (-torch.arange(half) / half)
  angles = torch.arange(length)[:, None] * rates
  return angles.cos(), angles.sin()


def _rotate(x: Any, cosines: Any, sines: Any) -> Any:
  import torch

  first, second = x.chunk(2, -1)
  turned = first * cosines - second * sines, second * cosines + first * sines
  return torch.cat(turned, -1)
