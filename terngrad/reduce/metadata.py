"""The small numbers of all workers, which travel before their messages do.

What a worker has, its probe, scores and moving statistics, is one row, so that
it costs one gather.
"""

from typing import NamedTuple

import tensorflow as tf

from terngrad.exchange import protocol
from terngrad.reduce import gradients
from terngrad.reduce import worker_map


class Row(NamedTuple):
  """What travels in a worker's row beside its probe.

  Attributes:
    num_scores: figures of its examples, the loss first.
    statistics: the shapes of its moving statistics.
    local_statistics: True where each device keeps the mean over its own
      workers, so that statistics do not travel.
  """

  num_scores: int = 0
  statistics: tuple[tuple[int, ...], ...] = ()
  local_statistics: bool = False


class Local(NamedTuple):
  """What the workers of one device computed.

  Attributes:
    carried: for each part a list with an entry a bucket: the
      `worker_map.Single`, or `tf.TensorArray`, of what each worker keeps until
      messages are sent. It is all that a further worker costs.
    probes: for each part float32 [its workers, probes].
    scores: float32 [its workers, scores].
    statistics: list of float32 [its workers, ...].
  """

  carried: list[list[worker_map.Single | tf.TensorArray]]
  probes: list[tf.Tensor]
  scores: tf.Tensor
  statistics: list[tf.Tensor]


class Metadata(NamedTuple):
  """What is known of all workers before messages are sent.

  Attributes:
    probes: for each part float32 [workers, probes].
    scores: float32 [workers, scores].
    stop: float32 [], the largest.
    shared: for each part and each device float32 [probes], the agreed probe.
    statistics: for each device a list of float32, the means over the workers.
      Every device has them from all, in the order of the workers, so that
      replicas stay equal to the bit; or from its own, see `Row`.
  """

  probes: list[tf.Tensor]
  scores: tf.Tensor
  stop: tf.Tensor
  shared: list[list[tf.Tensor]]
  statistics: list[list[tf.Tensor]]


def gather(
  exchange: protocol.Exchange, row: Row, local: list[Local], stop: tf.Tensor
) -> Metadata:
  """Lets the rows of all workers travel.

  Probes of other parts than the first travel by themselves.

  Args:
    exchange: between the workers.
    row: what travels.
    local: of each device.
    stop: float32 [], the signal that asks this process to stop.

  Returns:
    `Metadata`.
  """
  moving = () if row.local_statistics else row.statistics
  num_probes = local[0].probes[0].shape[1]
  sizes = [num_probes, row.num_scores, 1]
  sizes += [tf.TensorShape(shape).num_elements() for shape in moving]

  def conclude(
    everyone: tf.Tensor,
  ) -> tuple[tf.Tensor, tf.Tensor, list[tf.Tensor]]:
    probes, _, stops, *moments = tf.split(everyone, sizes, axis=1)
    statistics = [
      tf.reshape(tf.reduce_mean(values, axis=0), shape)
      for values, shape in zip(moments, moving, strict=True)
    ]
    return gradients.agree(probes), tf.reduce_max(stops), statistics

  rows = []
  for index, (device, one) in enumerate(
    zip(exchange.devices, local, strict=True)
  ):
    count = len(exchange.workers_of(index))
    with tf.device(device):
      columns = [one.probes[0], one.scores, tf.fill([count], stop)]
      columns += one.statistics if moving else []
      rows.append(tf.concat([tf.reshape(c, [count, -1]) for c in columns], 1))
  everyone, concluded = exchange.gather_metadata(rows, conclude)
  agreed, stops, statistics = (list(v) for v in zip(*concluded, strict=True))
  if row.local_statistics:
    statistics = list(map(_means, exchange.devices, local))
  shared, probes = [agreed], [everyone[:, :num_probes]]
  for number in range(1, len(local[0].probes)):
    known, agreed = exchange.gather_metadata(
      [one.probes[number] for one in local], gradients.agree
    )
    shared.append(agreed)
    probes.append(known)
  return Metadata(
    probes=probes,
    scores=everyone[:, num_probes : num_probes + row.num_scores],
    stop=stops[0],
    shared=shared,
    statistics=statistics,
  )


def _means(device: str, local: Local) -> list[tf.Tensor]:
  """The means of statistics over the workers of a device."""
  with tf.device(device):
    return [tf.reduce_mean(values, axis=0) for values in local.statistics]
