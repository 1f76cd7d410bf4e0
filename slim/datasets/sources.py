"""Sources that are read by the number of an example."""

from collections import abc
from typing import NamedTuple

import tensorflow as tf

from slim.datasets import examples


class ExampleSource(NamedTuple):
  """Examples that can be read in any order.

  Attributes:
    count: of the examples, >= 1.
    num_classes: labels are below it.
    labels: name by label, or None.
    read: takes an index, int64 [] in [0, count); returns the example. Runs
      within tf.data stages, several at a time.
  """

  count: int
  num_classes: int
  labels: dict[int, str] | None
  read: abc.Callable[[tf.Tensor], examples.Stored]
