"""Two shots whose second is ternary too: the error stays as a residual.

The owner of a slice averages the codes of all workers, adds what its last codes
left out, and sends the nearest ternary vector of one scaler. The rest waits for
the next step: error feedback on the server's side (Tang et al., DoubleSqueeze,
arXiv:1905.05957). Every process decodes the same words, so replicas stay equal
to the bit. But a step's average is not that of towers, and it is biased; the
sum over steps is off by no more than the residual.

Values are in units of the shared scalers, in which the variables of a bucket
are alike, so that one scaler does for a slice. Residuals are part of a run's
state as its parameters are. Each process has those of its slice; `elements_of`
and `slices_of` turn them into an array that does not depend on the number of
processes, and back.
"""

import tensorflow as tf

from terngrad.codec.stages import packing as packings
from terngrad.exchange import slices
from terngrad.exchange import sums

# Of the mean magnitude: what is smaller is coded as 0. Near the least squared
# error for Gaussian and for uniform values (Li and Liu, arXiv:1605.04711, 3.2).
_THRESHOLD = 0.7
_BACK = packings.base3()


def residual_shape(message, processes):
  """[elements a word, width] of the residual of what `ALGORITHM` fits.

  Args:
    message: `codec.method.Message`.
    processes: P.
  """
  cut = slices.of(message, processes)
  return cut.elements_per_word, cut.width


def elements_of(residuals, message, processes):
  """The residual of each element, from those of all processes.

  Args:
    residuals: float32 [P, elements a word, width], by process.
    message: `codec.method.Message`.
    processes: P.

  Returns:
    float32 [num_elements].
  """
  cut = slices.of(message, processes)
  values = tf.reshape(residuals, [processes, cut.elements_per_word * cut.width])
  return cut.in_order(values)[: message.num_elements]


def slices_of(elements, message, processes, rank):
  """The residual of a process; undoes `elements_of`.

  Args:
    elements: float32 [num_elements].
    message: `codec.method.Message`.
    processes: P.
    rank: of the process.

  Returns:
    float32 [elements_per_word, width].
  """
  cut = slices.of(message, processes)
  past = cut.elements_per_word * cut.num_words - message.num_elements
  rows = tf.reshape(
    tf.pad(elements, [[0, past]]), [cut.elements_per_word, cut.num_words]
  )
  first = min(rank * cut.width, cut.num_words)
  own = rows[:, first : first + cut.width]
  return tf.pad(own, [[0, 0], [0, cut.width - own.shape[1]]])


def nearest(values, size):
  """A ternary vector near some values, and its scaler.

  The scaler is the mean magnitude of what is not coded as 0, so that the error
  has a smaller square than the values, unless all are 0.

  Args:
    values: float32, any shape.
    size: integer, how many of them count; the others are 0.

  Returns:
    (codes int32 of the same shape, in {-1, 0, 1}; scaler float32 [], >= 0).
  """
  sizes = tf.abs(values)
  # Sums of many float32 lose their last terms.
  wide = tf.cast(sizes, tf.float64)
  mean = tf.reduce_sum(wide) / tf.cast(tf.maximum(size, 1), tf.float64)
  chosen = wide > _THRESHOLD * mean
  count = tf.reduce_sum(tf.cast(chosen, tf.float64))
  total = tf.reduce_sum(tf.where(chosen, wide, 0.0))
  codes = tf.where(chosen, tf.cast(tf.sign(values), tf.int32), 0)
  return codes, tf.cast(total / tf.maximum(count, 1.0), tf.float32)


def _sent_words(message, num_workers, processes):
  cut = slices.of(message, processes)
  own = num_workers // processes
  # A slice's scaler is a word beside its codes.
  back = _BACK.num_words(cut.elements_per_word * cut.width) + 1
  return (processes - 1) * (own * cut.width + back)


def _move(reduction, rows):
  cut, group = reduction.cut, reduction.group

  @sums.compiled
  def code(received, residual):
    total = tf.cast(cut.sums(received), tf.float32)
    values = total * (1.0 / reduction.num_workers) + residual
    exists = cut.exists(group.rank)
    values = tf.where(exists, values, 0.0)
    codes, scaler = nearest(values, tf.math.count_nonzero(exists))
    words = _BACK.pack(slices.in_planes(codes, _BACK))
    scaler_word = tf.bitcast(scaler, tf.int32)[tf.newaxis]
    left_out = values - scaler * tf.cast(codes, tf.float32)
    return tf.concat([words, scaler_word], axis=0), left_out

  received = group.all_to_all(cut.deal(rows))
  words, left_out = code(received, reduction.residual.read_value())
  reduction.residual.assign(left_out)
  return [group.all_gather(words[tf.newaxis])]


def _total(reduction, moved):
  """The coded averages times the number of workers, a list of a float32."""
  cut = reduction.cut

  @sums.compiled
  def unpack(packed):
    scalers = tf.bitcast(packed[:, -1:], tf.float32) * reduction.num_workers
    planes = _BACK.unpack(tf.reshape(packed[:, :-1], [-1]))
    codes = slices.of_planes(planes, cut)
    return cut.in_order(scalers * tf.cast(codes, tf.float32))

  return [unpack(*moved)]


ALGORITHM = sums.Algorithm(
  sums.ALGORITHMS[sums.TWO_SHOT].fits, _sent_words, _move, _total
)
