"""What a device has of a round's payloads before it decodes them."""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf


class Arrived(NamedTuple):
  """The average gradients of all workers, still coded.

  Attributes:
    moved: list of tensors, what the exchange brought.
    shared: float32 [probes], the agreed probe.
    decode: takes `moved` and `shared`, returns the list of average gradients.
    pieces: the payloads of all workers as `codec.pieces` takes them; None where
      they were added on their way.
  """

  moved: list
  shared: tf.Tensor
  decode: Callable
  pieces: list | None

  def mean(self):
    """The list of average gradients, on the current device."""
    return self.decode(self.moved, self.shared)
