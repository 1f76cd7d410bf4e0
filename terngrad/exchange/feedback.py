"""Two shots whose second is ternary too: what its codes leave out is kept.

The owner of a slice averages the codes of all workers, adds what its last codes
left out, and sends the nearest ternary vector of one scaler. The rest waits for
the next step: error feedback on the server's side (Tang et al., DoubleSqueeze,
arXiv:1905.05957). Every process decodes the same words, so replicas stay equal
to the bit. But a step's average is not that of towers, and it is biased; the
sum over steps is off by no more than what is kept.

Values are in units of the shared scalers, in which the variables of a bucket
are alike, so that one scaler does for a slice. What is kept is part of a run's
state as its parameters are: checkpoints hold that of all processes.
"""

from typing import NamedTuple

import tensorflow as tf

from terngrad.codec import packing as packings
from terngrad.exchange import slices

# Of the mean magnitude: what is smaller is coded as 0. Near the least squared
# error for Gaussian and for uniform values (Li and Liu, arXiv:1605.04711, 3.2).
_THRESHOLD = 0.7
_BACK = packings.base3()


def num_words(places, width):
  """int32 words of a slice on its way back: its codes and their scaler.

  Args:
    places: elements of a word of the first shot.
    width: such words of the slice.
  """
  return _BACK.num_words(places * width) + 1


class Kept(NamedTuple):
  """What a process keeps of a bucket, from step to step.

  Attributes:
    error: float32 variable [places, width], what the last codes of this
      process's slice left out; zeros at first.
    of: str, which elements and how they are cut: errors of something else are
      of no use.
  """

  error: tf.Variable
  of: str


def nothing_kept(bucket, num_processes):
  """A `Kept` of zeros.

  Args:
    bucket: `codec.gradients.Bucket`.
    num_processes: P.
  """
  cut = slices.of(bucket, num_processes)
  last = bucket.start + bucket.num_elements - 1
  return Kept(
    error=tf.Variable(tf.zeros([cut.places, cut.width]), trainable=False),
    of=f'{bucket.start} to {last} in {cut.processes} slices of {cut.places} x '
    f'{cut.width}',
  )


def make_move(bucket, group, num_workers, error):
  """Makes the first shot, and the second with what is kept between steps.

  Args:
    bucket: `codec.gradients.Bucket`.
    group: `group.Group`.
    num_workers: of all processes.
    error: variable of `nothing_kept`, which every step changes.

  Returns:
    A function of this process's payloads, int32 [its workers, words], that
    returns the coded averages of all slices, int32 [processes, `num_words`].
  """
  cut = slices.of(bucket, group.size)

  @tf.function(jit_compile=True)
  def code(received, kept):
    sums = tf.cast(cut.sums(received, num_workers), tf.float32)
    values = sums * (1.0 / num_workers) + kept
    exists = cut.exists(group.rank)
    values = tf.where(exists, values, 0.0)
    codes, scaler = nearest(values, tf.math.count_nonzero(exists))
    words = _BACK.pack(slices.in_planes(codes, _BACK))
    scaler_word = tf.bitcast(scaler, tf.int32)[tf.newaxis]
    left_out = values - scaler * tf.cast(codes, tf.float32)
    return tf.concat([words, scaler_word], axis=0), left_out

  def move(payloads):
    received = group.all_to_all(cut.deal(payloads))
    words, left_out = code(received, error.read_value())
    error.assign(left_out)
    return group.gather(words[tf.newaxis])

  return move


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


def decode(bucket, packed, shared, num_workers):
  """The average gradients of a bucket.

  Args:
    bucket: `codec.gradients.Bucket`.
    packed: int32 [processes, words], from `make_move`'s function.
    shared: float32 [probes of the bucket].
    num_workers: has been divided by.

  Returns:
    List of float32.
  """
  del num_workers
  cut = slices.of(bucket, packed.shape[0])
  scalers = tf.bitcast(packed[:, -1:], tf.float32)
  codes = slices.of_planes(_BACK.unpack(tf.reshape(packed[:, :-1], [-1])), cut)
  values = scalers * tf.cast(codes, tf.float32)
  return bucket.codec.decode_codes(
    cut.in_order(values), shared, bucket.shapes, 1.0
  )
