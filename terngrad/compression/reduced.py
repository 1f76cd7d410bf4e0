"""What is known of the compressed gradients of a step."""

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
  """The mean gradients of a step, and what they cost.

  Attributes:
    means: for each device a list of float32, the same bits on all. All elements
      are NaN where a worker's gradient of that variable was not finite.
    finite: for each device bool [variables], whether the gradients of each
      were, of all workers, and so is their sum.
    pending: for each device the `pending.PendingMean`.
  """

  means: list[list[tf.Tensor]]
  finite: list[tf.Tensor]
  pending: list[pending_lib.PendingMean]

  @property
  def sent(self) -> tf.Tensor:
    """int32 [workers of this process], words that each sent."""
    counts = []
    for one in self.pending:
      with tf.device(one.device):
        counts.append(tf.add_n(one.sent))
    return towers.in_order(counts)


class Observed(NamedTuple):
  """What an observer of a step gets; see `compressor.Compressor`.

  Attributes:
    codec: of the gradients.
    reduced: their means.
    gradients: for each worker of this process its list of float32 gradients;
      None where virtual workers compute one by one.
    exchange: between the workers.
    residuals: for each worker of this process the list of its variables of
      error feedback.
  """

  codec: gradients_lib.GradientCodec
  reduced: Reduced
  gradients: list[list[tf.Tensor]] | None
  exchange: protocol.Exchange
  residuals: list[list[tf.Variable]]


class Sums(NamedTuple):
  """The sums, or means, of all replicas' gradients.

  Attributes:
    values: list of the kinds and dtypes of the gradients. All elements of a
      variable are NaN where a replica's gradient was not finite; in
      `tf.IndexedSlices` the rows have what they had.
    finite: bool [variables], whether the gradient of each was finite on all
      replicas; equal on all.
  """

  values: list[tf.Tensor | tf.IndexedSlices]
  finite: tf.Tensor


Observer: TypeAlias = Callable[[Observed | passed_rows.PassedRows], None]
