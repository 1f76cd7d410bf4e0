"""The ways of a bucket's words between processes, and which to take.

`gather` sends every worker's words to all. `reduce` adds the words of packings
that add (`radix`) in TensorFlow's ring all-reduce. `two_shot` gives every
process a slice of the words of all, which it sums; the sums are packed as
digits of 2N + 1 levels and gathered. No way rounds anything: what is decoded
are the same sums of codes. Only `two_shot_ternary`, which must be asked for,
does: its sums return as ternary codes, see `feedback`.
"""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from terngrad.codec import packing as packings
from terngrad.exchange import feedback
from terngrad.exchange import slices

AUTO = 'auto'
LOSSY = 'two_shot_ternary'
WAYS = ('gather', 'reduce', 'two_shot', LOSSY)
# What a word of a way counts for when one is chosen. Those of two shots are
# unpacked, added and packed again on their way: with 4 hosts on 1 Gbit/s that
# took 1 s more than a gather of a third more words (experiments/network).
_WEIGHTS = {'two_shot': 2}


class Plan(NamedTuple):
  """How payloads move.

  Attributes:
    move: takes this process's payloads, int32 [its workers, words]; returns a
      list of tensors.
    decode: to be compiled; takes that list and the agreed probe, returns the
      average gradients.
    gathers: True where that list is of pieces of all payloads, int32 [workers,
      words of a piece], which `decode` takes as one.
    kept: list of `feedback.Kept`, one a bucket of `LOSSY`: what `move` keeps.
  """

  move: Callable
  decode: Callable
  gathers: bool
  kept: list


def plan(codec, group, num_workers, way=AUTO):
  """How a model's payloads move.

  Args:
    codec: `codec.gradients.GradientCodec`.
    group: `group.Group`.
    num_workers: of all processes.
    way: of `WAYS` for the buckets that can take it, the others gather; or
      `AUTO`, for each bucket that of the fewest bytes, but two shots only
      where they take half of the others', and never `LOSSY`.

  Returns:
    A `Plan`.
  """
  chosen = choices(codec, num_workers, group.size, way)
  if all(name == 'gather' for name in chosen):
    # One collective, and kernels that decode all buckets' words.
    return Plan(
      group.gather_pieces,
      codec.decode_mean,
      gathers=True,
      kept=[],
    )
  sizes = [bucket.num_words for bucket in codec.buckets]
  moves, kept = [], []
  for name, bucket in zip(chosen, codec.buckets, strict=True):
    state = ()
    if name == LOSSY:
      kept.append(feedback.nothing_kept(bucket, group.size))
      state = (kept[-1].error,)
    moves.append(_MAKE_MOVE[name](bucket, group, num_workers, *state))

  def move(payloads):
    columns = tf.split(payloads, sizes, axis=1)
    return [one(words) for one, words in zip(moves, columns, strict=True)]

  def decode(moved, shared):
    means = []
    numbers = codec.probes_of_buckets()
    for name, bucket, tensor, places in zip(
      chosen, codec.buckets, moved, numbers, strict=True
    ):
      agreed = tf.gather(shared, places)
      means += _DECODES[name](bucket, tensor, agreed, num_workers)
    return codec.in_model_order(means)

  return Plan(move, decode, gathers=False, kept=kept)


def choices(codec, num_workers, num_processes, way=AUTO):
  """The way of each bucket.

  Args:
    codec: `codec.gradients.GradientCodec`.
    num_workers: of all processes.
    num_processes: P.
    way: see `plan`.

  Returns:
    List of names of `WAYS`.
  """
  chosen = []
  for bucket in codec.buckets:
    costs = sent_words(bucket, num_workers, num_processes)
    if way == AUTO:
      chosen.append(_cheapest(costs))
    else:
      chosen.append(way if way in costs else 'gather')
  return chosen


def _cheapest(costs):
  """The way that `AUTO` takes, from what `sent_words` returns."""
  weighed = {
    name: words * _WEIGHTS.get(name, 1)
    for name, words in costs.items()
    if name != LOSSY
  }
  return min(weighed, key=weighed.get)


def sent_words(bucket, num_workers, num_processes):
  """What a process sends for a bucket, and receives, by each way.

  Args:
    bucket: `codec.gradients.Bucket`.
    num_workers: of all processes.
    num_processes: P.

  Returns:
    dict of a name of `WAYS`, those that are open to the codec, 'gather' first,
    to float, words of 32 bits.
  """
  own = num_workers // num_processes
  others = num_processes - 1
  costs = {'gather': others * own * bucket.num_words}
  if bucket.codec.decode_total is not None:
    # A ring adds 1/P of the words at a time, and passes the sums on.
    costs['reduce'] = 2 * others / num_processes * bucket.num_words
  if slices.fits(bucket.codec):
    cut = slices.of(bucket, num_processes)
    back = packings.sums(num_workers).num_words(cut.places * cut.width)
    costs['two_shot'] = others * (own * cut.width + back)
    back = feedback.num_words(cut.places, cut.width)
    costs[LOSSY] = others * (own * cut.width + back)
  return costs


def _gather(bucket, group, num_workers):
  del bucket, num_workers
  return group.gather


def _decode_gathered(bucket, words, shared, num_workers):
  return bucket.codec.decode_sum(
    [words], shared, bucket.shapes, 1.0 / num_workers
  )


def _reduce(bucket, group, num_workers):
  del num_workers
  return lambda words: group.all_reduce(
    tf.reduce_sum(bucket.codec.lanes(words), axis=0)
  )


def _decode_reduced(bucket, total, shared, num_workers):
  return bucket.codec.decode_total(
    total, num_workers, shared, bucket.shapes, 1.0 / num_workers
  )


def _two_shot(bucket, group, num_workers):
  """Packed sums of all slices, int32 [processes, words of a slice]."""
  cut = slices.of(bucket, group.size)
  back = packings.sums(num_workers)

  @tf.function(jit_compile=True)
  def sums(received):
    return back.pack(slices.in_planes(cut.sums(received, num_workers), back))

  def move(words):
    packed = sums(group.all_to_all(cut.deal(words)))
    return group.gather(packed[tf.newaxis])

  return move


def _decode_two_shot(bucket, packed, shared, num_workers):
  cut = slices.of(bucket, packed.shape[0])
  sums = packings.sums(num_workers).unpack(tf.reshape(packed, [-1]))
  sums = slices.of_planes(sums, cut)
  return bucket.codec.decode_codes(
    cut.in_order(sums), shared, bucket.shapes, 1.0 / num_workers
  )


_MAKE_MOVE = {
  'gather': _gather,
  'reduce': _reduce,
  'two_shot': _two_shot,
  LOSSY: feedback.make_move,
}
_DECODES = {
  'gather': _decode_gathered,
  'reduce': _decode_reduced,
  'two_shot': _decode_two_shot,
  LOSSY: feedback.decode,
}
