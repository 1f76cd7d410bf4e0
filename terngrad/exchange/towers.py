"""The in-process exchange: workers on the devices of one machine.

Worker r lives on device r mod M. What the workers of a device have to send is
stacked in the order of that device's workers; every device receives what all
workers sent, in the order of the workers, and decodes it by itself. So all
devices compute the same average from the same words, and N workers on one
device do exactly what N workers on N devices do.
"""

from typing import NamedTuple

import tensorflow as tf

from terngrad.codec import gradients


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


def share(towers, probes):
  """Round 1: agrees on the probes.

  Args:
    towers: `Towers`.
    probes: for each device float32 [its workers, variables].

  Returns:
    For each device the pair (shared float32 [variables], all probes float32
    [workers, variables]).
  """
  everywhere = gather(towers, probes)
  shared = []
  for device, gathered in zip(towers.devices, everywhere, strict=True):
    with tf.device(device):
      shared.append((gradients.agree(gathered), gathered))
  return shared


def gather(towers, parts):
  """Sends what every worker has to every device.

  Args:
    towers: `Towers`.
    parts: for each device a tensor [its workers, ...] on that device.

  Returns:
    For each device a tensor [workers, ...] on it, in the order of the workers.
  """
  orders = [
    list(towers.workers_of(place)) for place in range(len(towers.devices))
  ]
  gathered = []
  for device in towers.devices:
    with tf.device(device):
      gathered.append(
        tf.dynamic_stitch(orders, parts) if len(parts) > 1 else parts[0]
      )
  return gathered
