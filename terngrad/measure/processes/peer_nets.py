"""PyTorch modules with the same layers as nets of this package."""

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
