"""The exchange between processes: all-gather, all-reduce, two-shot.

Process p of P has the workers p k to (p + 1) k - 1, so that what processes
gather is in the order of the workers. Inside a process they live on its devices
as towers do. Every device decodes what all workers sent, or their sum, by
itself; whatever the way, the average is that of towers, to the bit.
"""

import tensorflow as tf

from terngrad.codec import pieces as pieces_lib
from terngrad.exchange import arrived
from terngrad.exchange import towers
from terngrad.exchange import ways


class Collective:
  """The exchange of one process with the others.

  Attributes:
    devices: tuple of names of this process's devices, one replica on each.
    num_workers: of all processes.
    first: the first worker of this process.
    own: how many it has.
    group: `group.Group`.
    kept: list of `feedback.Kept`, what `averaging`'s functions keep from step
      to step; the same buckets in every process.
  """

  def __init__(self, group, devices, num_workers, way='auto'):
    """Deals the workers.

    Args:
      group: `group.Group`.
      devices: see above.
      num_workers: a multiple of the processes, with a worker for each device.
      way: 'auto' or a key of `ways.WAYS`.
    """
    self.devices = devices
    self.num_workers = num_workers
    self.group = group
    self.kept = []
    self.own = num_workers // group.size
    self.first = group.rank * self.own
    self._way = way

  def workers_of(self, place):
    """The workers on `devices[place]`, as a range."""
    return range(self.first + place, self.first + self.own, len(self.devices))

  def place_of(self, worker):
    """The index in `devices` of a worker of this process."""
    return (worker - self.first) % len(self.devices)

  def share(self, rows):
    """Round 1: tells every worker's row of numbers to all.

    Args:
      rows: for each device float32 [its workers, n].

    Returns:
      For each device float32 [workers, n], in the order of the workers.
    """
    return self._spread(self.group.gather(self._joined(rows)))

  def averaging(self, codec):
    """Round 2: makes the function that moves payloads.

    Args:
      codec: `codec.gradients.GradientCodec`.

    Returns:
      A function of (for each device int32 [its workers, words], for each device
      the agreed probe float32 [probes]) that returns for each device an
      `arrived.Arrived`.
    """
    plan = ways.plan(codec, self.group, self.num_workers, self._way)
    decode = tf.function(plan.decode, jit_compile=codec.compiled)
    self.kept += plan.kept

    def average(payloads, shared):
      moved = plan.move(self._joined(payloads))
      result = []
      for device, agreed in zip(self.devices, shared, strict=True):
        with tf.device(device):
          own = [tf.identity(part) for part in moved]
          pieces = [[piece] for piece in own] if plan.gathers else None
          # Of no use to who takes pieces, and then left out of the graph.
          whole = pieces_lib.whole(pieces) if pieces else own
        result.append(arrived.Arrived(whole, agreed, decode, pieces))
      return result

    return average

  def _joined(self, parts):
    """The rows of this process's workers, in their order."""
    if len(parts) == 1:
      return parts[0]
    with tf.device(self.devices[0]):
      return towers.in_order(parts)

  def _spread(self, tensor):
    copies = []
    for device in self.devices:
      with tf.device(device):
        copies.append(tf.identity(tensor))
    return copies
