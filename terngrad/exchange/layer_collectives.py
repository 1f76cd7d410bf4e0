"""What workers tell each other in the middle of their passes.

Everything else travels between passes, where one device's program holds what
all devices made. Inside a layer each worker's program has to wait for those of
the others, so this takes collective operations, also within a process.
"""

import collections
import functools
import itertools

import tensorflow as tf

from terngrad.exchange import protocol

# Those of a process share one table of the runtime, whoever made them.
_GROUP_KEYS = itertools.count(8001)
_INSTANCE_KEYS = itertools.count(1)


class LayerCollectives:
  """Gathers small tensors of all workers, in any place of their programs.

  Every worker's program must ask in the same order.
  """

  def __init__(self, exchange: protocol.Exchange) -> None:
    """Takes the workers of an exchange.

    Args:
      exchange: `towers.Towers` or `collective.Collective`; one worker a device,
        and where there are several processes, one device a process.

    Raises:
      ValueError: more than that. They run one after the other, or would have to
        wait for their own process.
    """
    group = exchange.group
    if group is not None and group.size == 1:
      group = None
    expected = len(exchange.devices) if group is None else group.size
    if exchange.num_workers != expected:
      raise ValueError(
        f'exchange: expected one worker a {"process" if group else "device"},'
        f' {expected} in all; received {exchange.num_workers}. Give each its '
        'own.'
      )
    self._count, self._group = expected, group
    self._group_key = next(_GROUP_KEYS)
    # The same for the n-th question of every device.
    self._instance_keys: dict[int, int] = collections.defaultdict(
      functools.partial(next, _INSTANCE_KEYS)
    )
    self._questions = [itertools.count() for _ in exchange.devices]

  def gather(self, device_index: int, tensor: tf.Tensor) -> tf.Tensor:
    """All-gather.

    Args:
      device_index: in the exchange, of the device where this is called.
      tensor: float32 [...], the same shape for all workers.

    Returns:
      [workers, ...], in the order of the workers.
    """
    if self._count == 1:
      return tensor[None]
    if self._group is not None:
      return self._group.all_gather(tensor[None])
    # CollectiveGatherV2 waits for ever where no cluster was configured.
    return tf.raw_ops.CollectiveGather(
      input=tensor[None],
      group_size=self._count,
      group_key=self._group_key,
      instance_key=self._instance_keys[next(self._questions[device_index])],
      shape=[self._count, *tensor.shape],
    )
