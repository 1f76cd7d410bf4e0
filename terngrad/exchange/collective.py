"""The exchange between processes: all-gather, all-reduce, two-shot.

Process p of P has the workers p k to (p + 1) k - 1, so that what processes
gather is in the order of the workers. Inside a process they live on its devices
as towers do. Every device decodes what all workers sent, or their sum, by
itself; whatever the algorithm, the average is that of towers, to the bit.
"""

from typing import NamedTuple

import tensorflow as tf

from terngrad.exchange import algorithms
from terngrad.exchange import gathering
from terngrad.exchange import group as groups
from terngrad.exchange import sums
from terngrad.exchange import towers


class Collective:
  """The exchange of one process with the others; see `towers.Towers`.

  Attributes:
    devices: tuple of names of this process's devices, one replica on each.
    num_workers: of all processes.
    first: the first worker of this process.
    own: how many it has.
    group: `group.Group`.
  """

  def __init__(
    self,
    group,
    devices,
    num_workers,
    algorithm=algorithms.AUTO,
    network=algorithms.GIGABIT,
  ):
    """Deals the workers.

    Args:
      group: `group.Group`.
      devices: see above.
      num_workers: a multiple of the processes, with a worker for each device.
      algorithm: `algorithms.AUTO` or one of `algorithms.NAMES`.
      network: `algorithms.Network`, by which `AUTO` chooses.
    """
    self.devices = devices
    self.num_workers = num_workers
    self.group = group
    self.own = num_workers // group.size
    self.first = group.rank * self.own
    self._choice = algorithm, network

  def workers_of(self, device_index):
    """The workers on `devices[device_index]`, as a range."""
    return range(
      self.first + device_index, self.first + self.own, len(self.devices)
    )

  def device_of(self, worker):
    """The index in `devices` of a worker of this process."""
    return (worker - self.first) % len(self.devices)

  @property
  def local_devices(self):
    """Indices in `devices` of this process's devices."""
    return range(len(self.devices))

  def batches(self, images, labels):
    """The examples of this process's workers; see `towers.Towers`."""
    batch = towers.Batch(images, labels, self.first)
    return [batch] * len(self.devices)

  def gather_metadata(self, rows, conclude):
    """Tells every worker's row of numbers to all; see `towers.Towers`."""
    everyone = self.group.all_gather(self._joined(rows))
    copies, concluded = [], []
    for device in self.devices:
      with tf.device(device):
        copies.append(tf.identity(everyone))
        concluded.append(conclude(copies[-1]))
    return copies[0], concluded

  def combine(self, messages, payloads):
    """Moves the messages of a round; see `towers.Towers`."""
    names = algorithms.choices(
      messages, self.num_workers, self.group.size, *self._choice
    )
    with tf.device(self.devices[0]):
      moved = self._move(messages, names, payloads)
    return [self._received(device, names, moved) for device in self.devices]

  def told(self, messages):
    """A line for people: how the messages of a step travel, and why."""
    return algorithms.told(
      messages, self.num_workers, self.group.size, *self._choice
    )

  def report(self, step, losses):
    """Nothing: every process takes the same step; see `towers.Towers`."""
    # AutoGraph warns of a function that is a docstring alone.
    del step, losses

  def _move(self, messages, names, payloads):
    """`_Moved`, from the arguments of `combine`."""
    rows = self._joined(payloads)
    whole = [
      m for m, n in zip(messages, names, strict=True) if n == algorithms.GATHER
    ]
    if len(whole) == len(messages):
      return _Moved(whole, gathering.move(self.group, whole, rows), [])
    parts = groups.columns(rows, [message.num_words for message in messages])
    own, reduced = [], []
    for message, name, part in zip(messages, names, parts, strict=True):
      if name == algorithms.GATHER:
        own.append(part)
        continue
      reduction = sums.Reduction(message, self.group, self.num_workers)
      tensors = sums.ALGORITHMS[name].move(reduction, part)
      reduced.append(_Reduced(name, reduction, tensors))
    gathered = None
    if whole:
      gathered = gathering.move(self.group, whole, tf.concat(own, axis=1))
    return _Moved(whole, gathered, reduced)

  def _received(self, device, names, moved):
    """What a device receives; see `combine`."""
    with tf.device(device):
      whole, others = [], []
      if moved.gathered:
        here = tf.nest.map_structure(tf.identity, moved.gathered)
        whole = gathering.received(moved.whole, here)
      for name, reduction, tensors in moved.reduced:
        here = [tf.identity(tensor) for tensor in tensors]
        others.append(sums.ALGORITHMS[name].received(reduction, here))
    whole, others = iter(whole), iter(others)
    return [next(whole if n == algorithms.GATHER else others) for n in names]

  def _joined(self, parts):
    """The rows of this process's workers, in their order."""
    if len(parts) == 1:
      return parts[0]
    with tf.device(self.devices[0]):
      return towers.in_order(parts)


class _Reduced(NamedTuple):
  """A message that not all have whole: by which algorithm, what it moved."""

  name: str
  reduction: sums.Reduction
  tensors: list


class _Moved(NamedTuple):
  """What all processes have of a round.

  Attributes:
    whole: list of `codec.method.Message`, those that were gathered.
    gathered: `gathering.Gathered` of them, None where there is none.
    reduced: list of `_Reduced`, the others in their order.
  """

  whole: list
  gathered: gathering.Gathered | None
  reduced: list
