"""Metadata all-gather: a few numbers per worker, before the messages.

The probe, scores and moving statistics of a worker are concatenated to one row,
so that a single all-gather moves them.
"""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from terngrad.exchange import device_groups
from terngrad.exchange import protocol
from terngrad.reduce import gradients
from terngrad.reduce import worker_map


class Row(NamedTuple):
  """Columns of a worker's metadata row beside its probe.

  Attributes:
    num_scores: number of scores of the worker's batch; the loss is the first.
    statistics: shapes of the moving statistics.
    local_statistics: True if each device averages the statistics over its
      workers only; the row then has no statistics.
  """

  num_scores: int = 0
  statistics: tuple[tuple[int, ...], ...] = ()
  local_statistics: bool = False


class Local(NamedTuple):
  """Results of the workers of one device before the exchange.

  Attributes:
    carried: for each part and bucket what each worker holds until messages are
      sent. This is all the memory that a further worker on the device costs.
    probes: for each part float32 [workers of the device, probes].
    scores: float32 [workers of the device, scores].
    statistics: float32 [workers of the device, ...] of each moving statistic.
  """

  carried: list[list[worker_map.SingleValue | tf.TensorArray]]
  probes: list[tf.Tensor]
  scores: tf.Tensor
  statistics: list[tf.Tensor]


class Metadata(NamedTuple):
  """The gathered metadata of all workers.

  Attributes:
    probes: for each part float32 [workers, probes].
    scores: float32 [workers, scores].
    stop: float32 [], the largest stop signal of all processes.
    shared: for each part and each device float32 [probes], the agreed probe.
    statistics: for each device float32 [n], the concatenated means of the
      moving statistics over the workers; see `split`. Every device averages all
      workers in the same order, so that replicas stay bit-identical; with
      `Row.local_statistics` a device averages only its workers.
  """

  probes: list[tf.Tensor]
  scores: tf.Tensor
  stop: tf.Tensor
  shared: list[list[tf.Tensor]]
  statistics: list[tf.Tensor]


def gather(
  exchange: protocol.Exchange, row: Row, local: list[Local], stop: tf.Tensor
) -> Metadata:
  """All-gathers the metadata rows of all workers.

  The row holds the probe of the first part. The probe of each further part
  takes another all-gather.

  Args:
    exchange: connects the workers.
    row: the columns beside the probe.
    local: the results of each device that has workers.
    stop: float32 [], number of the signal that asks this process to stop; 0
      for none.
  """
  num_probes = local[0].probes[0].shape[1]
  sizes = [num_probes, row.num_scores, 1, -1]

  def conclude(
    all_rows: tf.Tensor,
  ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    probes, _, stops, moments = tf.split(all_rows, sizes, axis=1)
    # One mean, because a GPU takes as long for a statistic as for all.
    statistics = tf.reduce_mean(moments, axis=0)
    return gradients.agree(probes), tf.reduce_max(stops), statistics

  rows = []
  for index, one in zip(
    device_groups.leading_devices(exchange), local, strict=True
  ):
    count = len(exchange.workers_of(index))
    with tf.device(exchange.devices[index]):
      columns = [one.probes[0], one.scores, tf.fill([count], stop)]
      columns += () if row.local_statistics else one.statistics
      rows.append(_join(columns, count))
  all_rows, concluded = exchange.gather_metadata(rows, conclude)
  agreed, stops, statistics = (list(v) for v in zip(*concluded, strict=True))
  if row.local_statistics:
    statistics = list(map(_means, exchange.devices, local))
  shared, probes = [agreed], [all_rows[:, :num_probes]]
  for number in range(1, len(local[0].probes)):
    gathered_probes, agreed = exchange.gather_metadata(
      [one.probes[number] for one in local], gradients.agree
    )
    shared.append(agreed)
    probes.append(gathered_probes)
  return Metadata(
    probes=probes,
    scores=all_rows[:, num_probes : num_probes + row.num_scores],
    stop=stops[0],
    shared=shared,
    statistics=statistics,
  )


def _means(device: str, local: Local) -> tf.Tensor:
  """Averages the statistics over the workers of a device, float32 [n]."""
  count = local.scores.shape[0]
  if not local.statistics:
    return tf.zeros([0])
  with tf.device(device):
    return tf.reduce_mean(_join(local.statistics, count), axis=0)


def flat(values: Sequence[tf.Tensor]) -> tf.Tensor | None:
  """Concatenates statistics to float32 [n]; None for none."""
  return tf.concat([tf.reshape(v, [-1]) for v in values], 0) if values else None


def _join(columns: Sequence[tf.Tensor], count: int) -> tf.Tensor:
  """Concatenates tensors [count, ...] to one of [count, n]."""
  return tf.concat([tf.reshape(c, [count, -1]) for c in columns], 1)


def split(
  values: tf.Tensor, shapes: Sequence[Sequence[int]]
) -> list[tf.Tensor]:
  """Splits the concatenated statistics of a model.

  Args:
    values: float32 [n].
    shapes: of the statistics.
  """
  if not shapes:
    return []
  sizes = [tf.TensorShape(shape).num_elements() for shape in shapes]
  parts = gradients.split(values, sizes, axis=0)
  return [
    tf.reshape(part, shape) for part, shape in zip(parts, shapes, strict=True)
  ]
