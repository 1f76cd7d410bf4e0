"""Keys: (seed, step, worker, bucket) as what the codes of a bucket draw by."""

import tensorflow as tf

from terngrad.codec import random_bits

# What stands for the worker where all draw the same: the number of none.
_EVERYBODY = -(2**31)
# Folded into a bucket's key: the order of the workers' strata.
_ORDER = 1
# Likewise: the draws of thinning.
_THINNING = 2


def worker_key(seed, step, worker):
  """The key of one worker's codes in one step.

  Args:
    seed: int64 [] or integer, of the run.
    step: int64 [], steps taken before this one.
    worker: int32 or int64 [].

  Returns:
    uint32 [2].
  """
  key = random_bits.fold_in(random_bits.seed_key(seed), step)
  return random_bits.fold_in(key, worker)


def of_buckets(streams, seed, step, worker):
  """The keys of the buckets of one worker.

  Args:
    streams: for each bucket the pair of the number that its key is derived by
      and its `contract.Codec`.
    seed: int64 [] or integer, of the run.
    step: int64 [], steps taken before this one.
    worker: int32 or int64 [].

  Returns:
    uint32 [buckets, 3]: two numbers, which are the worker's own or, for codecs
    with strata, equal for all workers; and the worker's stratum, or 0.
  """
  rows = []
  for place, codec in streams:
    strata = codec.quantizer.strata if codec.quantizer else 0
    owner = _EVERYBODY if strata else worker
    key = random_bits.fold_in(worker_key(seed, step, owner), place)
    stratum = tf.constant(0, tf.uint32)
    if strata:
      order = random_bits.fold_in(key, _ORDER)
      stratum = random_bits.stratum(order, worker, strata)
    rows.append(tf.concat([key, [stratum]], axis=0))
  return tf.stack(rows)


def for_thinning(key):
  """The key of a bucket's thinning, uint32 [3] from that of its codes."""
  return tf.concat([random_bits.fold_in(key[:2], _THINNING), key[2:]], axis=0)


def from_element(key, start):
  """The key of a bucket whose first element is a larger one's `start`-th.

  Args:
    key: uint32 [2] or [3], of the larger bucket.
    start: int.

  Returns:
    The same shape: an element has the bits that it has in the larger bucket.
  """
  if start == 0:
    return key
  # `random_bits.element_bits` adds an element's index to the first number.
  return key + tf.constant(
    [start % 2**32] + [0] * (key.shape[0] - 1), tf.uint32
  )
