"""Results of reducing the gradients of a step, and what observers receive."""

from collections.abc import Callable
from typing import NamedTuple
from typing import TypeAlias

import tensorflow as tf

from terngrad.compression import passed_rows
from terngrad.exchange import protocol
from terngrad.exchange import towers
from terngrad.reduce import gradients as gradients_lib
from terngrad.reduce import pending as pending_lib


class Reduced(NamedTuple):
  """The mean gradients of a step, and the words that were sent.

  Attributes:
    means: for each device a list of float32 tensors, bit-identical on all
      devices. All elements are NaN if a worker's gradient of that variable was
      not finite.
    finite: for each device bool [variables], whether the gradients of all
      workers and their sum were finite.
    pending: for each device the `pending.PendingMean`.
  """

  means: list[list[tf.Tensor]]
  finite: list[tf.Tensor]
  pending: list[pending_lib.PendingMean]

  @property
  def sent(self) -> tf.Tensor:
    """Words that each worker of this process sent, int32 [workers]."""
    counts = []
    for one in self.pending:
      if one.workers:
        with tf.device(one.device):
          counts.append(tf.add_n(one.sent))
    return towers.order_by_worker(counts)


class Observed(NamedTuple):
  """The result of a step, passed to `Compressor.observer`.

  Attributes:
    codec: codec of the gradients.
    reduced: their means.
    gradients: for each worker of this process its list of float32 gradients;
      None if virtual workers compute them one after the other.
    exchange: the exchange between the workers.
    residuals: for each worker of this process the list of its error feedback
      residuals.
  """

  codec: gradients_lib.GradientCodec
  reduced: Reduced
  gradients: list[list[tf.Tensor]] | None
  exchange: protocol.Exchange
  residuals: list[list[tf.Variable]]


class Sums(NamedTuple):
  """The sums, or means, of all replicas' gradients.

  Attributes:
    values: list with the kinds and dtypes of the gradients. If a replica's
      gradient of a variable was not finite, all elements of a dense sum are
      NaN; rows of `tf.IndexedSlices` are passed on unchanged.
    finite: bool [variables], whether the gradient of each was finite on all
      replicas; equal on all replicas.
  """

  values: list[tf.Tensor | tf.IndexedSlices]
  finite: tf.Tensor


Observer: TypeAlias = Callable[[Observed | passed_rows.PassedRows], None]
