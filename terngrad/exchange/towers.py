"""The in-process exchange: workers on the devices of one machine.

Worker r lives on device r mod M. What the workers of a device have to send is
stacked in the order of that device's workers; every device receives what all
workers sent and decodes it by itself, in the order of the workers. So all
devices compute the same average from the same words, and N workers on one
device do exactly what N workers on N devices do.
"""

from typing import NamedTuple

import tensorflow as tf

from terngrad.exchange import arrived


class Towers(NamedTuple):
  """Where the workers live.

  Attributes:
    devices: tuple of device names, one replica of the parameters on each; the
      same name may stand twice.
    num_workers: >= len(devices).
  """

  devices: tuple
  num_workers: int

  def workers_of(self, place):
    """The workers on `devices[place]`, as a range."""
    return range(place, self.num_workers, len(self.devices))

  def place_of(self, worker):
    """The index in `devices` of a worker's device."""
    return worker % len(self.devices)

  @property
  def first(self):
    """The first worker of this process."""
    return 0

  @property
  def own(self):
    """How many workers this process has."""
    return self.num_workers

  @property
  def group(self):
    """The group of processes: there is none."""
    return None

  @property
  def kept(self):
    """What is kept from step to step: nothing; see `Collective`."""
    return []

  def share(self, rows):
    """Round 1: tells every worker's row of numbers to all.

    Args:
      rows: for each device float32 [its workers, n].

    Returns:
      For each device float32 [workers, n], in the order of the workers.
    """
    shared = []
    for device, parts in zip(self.devices, send(self, rows), strict=True):
      with tf.device(device):
        shared.append(in_order(parts))
    return shared

  def averaging(self, codec):
    """Round 2: makes the function that moves payloads.

    Args:
      codec: `codec.gradients.GradientCodec`.

    Returns:
      A function of (for each device int32 [its workers, words], for each device
      the agreed probe float32 [probes]) that returns for each device an
      `arrived.Arrived`.
    """
    decode = tf.function(codec.decode_mean, jit_compile=codec.compiled)

    def average(payloads, shared):
      return [
        arrived.Arrived(words, agreed, decode, [words])
        for words, agreed in zip(send(self, payloads), shared, strict=True)
      ]

    return average


def send(towers, parts):
  """Sends what every worker has to every device.

  Args:
    towers: `Towers`.
    parts: for each device a tensor [its workers, ...] on that device.

  Returns:
    For each device the list of `parts`, on that device. They stay apart:
    putting them in the order of the workers would copy them once more.
  """
  received = []
  for device in towers.devices:
    with tf.device(device):
      received.append([tf.identity(part) for part in parts])
  return received


def in_order(parts):
  """One tensor [workers, ...] in the order of the workers, from `parts`."""
  if len(parts) == 1:
    return parts[0]
  total = sum(part.shape[0] for part in parts)
  orders = [list(range(i, total, len(parts))) for i in range(len(parts))]
  return tf.dynamic_stitch(orders, parts)
