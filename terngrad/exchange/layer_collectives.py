"""Collectives that layers use in the middle of the forward and backward pass.

All other communication takes place between passes, when one program has the
results of all devices. Inside a layer, the program of each worker waits for the
programs of the others. This needs collective operations even within a process.
"""

import collections
import functools
import itertools

import tensorflow as tf

from terngrad.exchange import protocol

# All collectives of a process share one table of the runtime.
_GROUP_KEYS = itertools.count(8001)
_INSTANCE_KEYS = itertools.count(1)


class LayerCollectives:
  """Gathers small tensors of all workers inside their forward or backward pass.

  The programs of all workers must call `gather` in the same order.
  """

  def __init__(self, exchange: protocol.Exchange) -> None:
    """Prepares collectives among the workers of an exchange.

    Args:
      exchange: `towers.Towers` or `collective.Collective` with one worker per
        device and, if there are several processes, one device per process.

    Raises:
      ValueError: the exchange has more workers. Workers on one device run one
        after the other, and a process cannot wait for itself.
    """
    group = exchange.group
    if group is not None and group.size == 1:
      group = None
    expected = len(exchange.devices) if group is None else group.size
    if exchange.num_workers != expected:
      unit = 'process' if group else 'device'
      raise ValueError(
        f'exchange: expected one worker per {unit}, {expected} in total, '
        f'received {exchange.num_workers}. Use one {unit} per worker.'
      )
    self._count, self._group = expected, group
    self._group_key = next(_GROUP_KEYS)
    # The n-th `gather` has the same key on every device.
    self._instance_keys: dict[int, int] = collections.defaultdict(
      functools.partial(next, _INSTANCE_KEYS)
    )
    self._call_counters = [itertools.count() for _ in exchange.devices]

  def gather(self, device_index: int, tensor: tf.Tensor) -> tf.Tensor:
    """Gathers a tensor of each worker.

    Args:
      device_index: index in the exchange of the calling device.
      tensor: float32 [...], the same shape for all workers.

    Returns:
      [workers, ...], in the order of the workers.
    """
    if self._count == 1:
      return tensor[None]
    if self._group is not None:
      return self._group.all_gather(tensor[None])
    # CollectiveGatherV2 hangs if no cluster is configured.
    return tf.raw_ops.CollectiveGather(
      input=tensor[None],
      group_size=self._count,
      group_key=self._group_key,
      instance_key=self._instance_keys[next(self._call_counters[device_index])],
      shape=[self._count, *tensor.shape],
    )
