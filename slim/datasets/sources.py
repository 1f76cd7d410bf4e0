"""Sources that are read by the number of an example."""

import abc

import tensorflow as tf

from slim.datasets import examples


class ExampleSource(abc.ABC):
  """Examples that can be read in any order.

  Attributes:
    count: of the examples, >= 1.
    num_classes: labels are below it.
    labels: name by label, or None.
  """

  def __init__(
    self, count: int, num_classes: int, labels: dict[int, str] | None
  ) -> None:
    """Takes what all sources have; see the class."""
    self.count = count
    self.num_classes = num_classes
    self.labels = labels

  @abc.abstractmethod
  def read(self, index: tf.Tensor) -> examples.Stored:
    """Reads an example, within tf.data stages, several at a time.

    Args:
      index: int64 [], in [0, count).
    """
