"""Nets of the race as PyTorch modules, layer by layer those of this package."""


def alexnet(nn, classes):
  """`exchanges.single_column_alexnet`.

  Args:
    nn: `torch.nn`.
    classes: int.
  """

  def conv(*sizes):
    return nn.Conv2d(*sizes, padding='same'), nn.ReLU()

  def dense(*sizes):
    return nn.Linear(*sizes), nn.ReLU()

  return nn.Sequential(
    *(nn.Conv2d(3, 64, 11, 4, 2), nn.ReLU(), nn.MaxPool2d(3, 2)),
    *(*conv(64, 192, 5), nn.MaxPool2d(3, 2)),
    *(*conv(192, 384, 3), *conv(384, 256, 3), *conv(256, 256, 3)),
    *(nn.MaxPool2d(3, 2), nn.Flatten()),
    *(*dense(9216, 4096), *dense(4096, 4096), nn.Linear(4096, classes)),
  )


def resnet_v1_50(nn, classes):
  """The net of that name of `slim.nets`: the last unit of a block strides.

  He et al., Deep Residual Learning, https://arxiv.org/abs/1512.03385, table 1.

  Args:
    nn: `torch.nn`.
    classes: int.
  """

  class Sum(nn.Module):
    """The rectified sum of two branches."""

    def __init__(self, branch, shortcut):
      super().__init__()
      self.branch, self.shortcut = branch, shortcut

    def forward(self, x):
      return nn.functional.relu(self.branch(x) + self.shortcut(x))

  def conv(before, after, size, stride=1):
    # Without bias, as normalized convolutions of slim are.
    padding = size // 2
    return (
      nn.Conv2d(before, after, size, stride, padding, bias=False),
      nn.BatchNorm2d(after),
    )

  def unit(before, width, stride):
    after = 4 * width
    branch = nn.Sequential(
      *(*conv(before, width, 1), nn.ReLU()),
      *(*conv(width, width, 3, stride), nn.ReLU()),
      *conv(width, after, 1),
    )
    shortcut = nn.MaxPool2d(1, stride)
    if before != after:
      shortcut = nn.Sequential(*conv(before, after, 1, stride))
    return Sum(branch, shortcut)

  layers = [*conv(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
  before = 64
  for width, units, stride in (
    (64, 3, 2),
    (128, 4, 2),
    (256, 6, 2),
    (512, 3, 1),
  ):
    for number in range(units):
      last = number == units - 1
      layers.append(unit(before, width, stride if last else 1))
      before = 4 * width
  return nn.Sequential(
    *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes)
  )
