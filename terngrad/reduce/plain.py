"""Float32 gradients of one device's workers, which are added without messages.

`identity` sends the bits of the gradients. If all workers share a device, the
mean needs no words: it is the gradient of the only worker, or a running sum in
the order of the workers, with the bits that encoding and decoding give.
"""

import tensorflow as tf

from terngrad.exchange import protocol
from terngrad.exchange import towers
from terngrad.reduce import gradients as gradients_lib
from terngrad.reduce import pending as pending_lib
from terngrad.reduce import programs as programs_lib
from terngrad.reduce import worker_map


def adds_directly(
  codec: gradients_lib.GradientCodec, exchange: protocol.Exchange
) -> bool:
  """Returns whether the workers add their gradients without messages."""
  return (
    isinstance(exchange, towers.Towers)
    and len(exchange.devices) == 1
    and not exchange.keeps_words
    and all(bucket.method.is_plain for bucket in codec.buckets)
  )


def running_sums(
  codec: gradients_lib.GradientCodec,
) -> list[worker_map.RunningSum]:
  """Declares the sum of each variable's gradients, for `worker_map`."""
  shapes = {
    index: shape
    for bucket in codec.buckets
    for index, shape in zip(bucket.indices, bucket.shapes, strict=True)
  }
  return [worker_map.RunningSum(shapes[index]) for index in sorted(shapes)]


class PlainMean(pending_lib.PendingMean):
  """The mean of gradients that were added on the device; nothing is received.

  `sent` counts the words that the workers would send on separate devices.
  """

  def __init__(
    self,
    exchange: protocol.Exchange,
    part: programs_lib.Part,
    start: pending_lib.StepStart,
  ) -> None:
    """Takes the sums of the part's variables from a step that has begun."""
    self.device = exchange.devices[0]
    self.workers = exchange.workers_of(0)
    self.received, self.words = [], []
    self.step = start.steps[0]._replace(
      shared_probe=start.metadata.shared[part.number][0]
    )
    self._sums: list[tf.Tensor] = [
      one.value for one in start.local[0].carried[part.number]
    ]
    count, words = exchange.num_workers, part.codec.num_words
    with tf.device(self.device):
      self.sent = [tf.fill([count], words)]

  def means(self) -> list[tf.Tensor]:
    """Divides the sums by the number of workers; one worker copies nothing."""
    scale = 1.0 / self.step.num_workers
    if scale == 1.0:
      return list(self._sums)
    with tf.device(self.device):
      return [total * scale for total in self._sums]
