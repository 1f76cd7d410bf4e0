"""The exchange by parameter servers: push codes, pull packed sums.

Worker r lives on place r mod M, as with towers; the places of a process are
its devices. Workers push their payloads, a range of words to each server; a
server adds them in the order of the workers and every process pulls each sum
once, whatever the number of its devices.
"""

from typing import NamedTuple

import tensorflow as tf

from terngrad.codec import gradients
from terngrad.exchange import towers as tower_lib


class Layout(NamedTuple):
  """Who lives where.

  Attributes:
    towers: `towers.Towers`, the workers on full device names; the places come
      device by device, so that process p has the workers p, p + P, p + 2 P...
    servers: tuple of full device names, one a parameter server.
    num_processes: P, processes with workers.
  """

  towers: tower_lib.Towers
  servers: tuple
  num_processes: int

  def process_of(self, place):
    """The process that a place belongs to."""
    return place % self.num_processes


def share(layout, probes):
  """Round 1: the first server agrees on the probes.

  Args:
    layout: `Layout`.
    probes: for each place float32 [its workers, probes].

  Returns:
    (shared, agreed): float32 [probes] on the first server, and for each
    place the same there.
  """
  with tf.device(layout.servers[0]):
    shared = gradients.agree(tf.concat(probes, axis=0))
  return shared, _pull(layout, shared)


def average(layout, totals, payloads, shared, agreed):
  """Round 2: servers add the codes, workers decode the sums.

  Args:
    layout: `Layout`.
    totals: `codec.totals.Totals` of the codec.
    payloads: for each place int32 [its workers, words].
    shared: float32 [probes], the agreed probe, on the first server.
    agreed: for each place the same there.

  Returns:
    For each place the list of average gradients.
  """
  pulled = [[] for _ in layout.towers.devices]
  for server, (start, stop) in enumerate(totals.ranges):
    if start == stop:
      continue
    parts = []
    for device, payload in zip(layout.towers.devices, payloads, strict=True):
      with tf.device(device):
        parts.append(payload[:, start:stop])
    with tf.device(layout.servers[server]):
      total = totals.add(server, parts, shared)
    for place, words in enumerate(_pull(layout, total)):
      pulled[place].append(words)
  means = []
  for device, sums, probe in zip(
    layout.towers.devices, pulled, agreed, strict=True
  ):
    with tf.device(device):
      means.append(totals.decode_mean(sums, probe))
  return means


def mean(layout, parts):
  """The mean over all workers of small tensors, on every place.

  Args:
    layout: `Layout`.
    parts: for each place float32 [its workers, ...].

  Returns:
    For each place float32 [...].
  """
  with tf.device(layout.servers[0]):
    in_order = tower_lib.in_order([tf.identity(part) for part in parts])
    value = tf.reduce_mean(in_order, axis=0)
  return _pull(layout, value)


def _pull(layout, value):
  """A server's tensor on every place: one transfer a process."""
  found = []
  firsts = {}
  for place, device in enumerate(layout.towers.devices):
    process = layout.process_of(place)
    with tf.device(device):
      found.append(tf.identity(firsts.get(process, value)))
    firsts.setdefault(process, found[-1])
  return found
