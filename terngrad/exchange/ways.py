"""The ways of a bucket's words between processes, and which to take.

`gather` sends every worker's words to all. `reduce` adds the words of packings
that add (`radix`) in TensorFlow's ring all-reduce. `two_shot` gives every
process a slice of the words of all, which it sums; the sums are packed as
digits of 2N + 1 levels and gathered. No way rounds anything: what is decoded
are the same sums of codes.
"""

import tensorflow as tf

from terngrad.codec import packing as packings
from terngrad.codec import planes
from terngrad.codec import wire

AUTO = 'auto'
WAYS = ('gather', 'reduce', 'two_shot')
# What a word of a way counts for when one is chosen. Those of two shots are
# unpacked, added and packed again on their way: with 4 hosts on 1 Gbit/s that
# took 1 s more than a gather of a third more words (experiments/network).
_WEIGHTS = {'two_shot': 2}


def plan(codec, group, num_workers, way=AUTO):
  """How a model's payloads move.

  Args:
    codec: `codec.gradients.GradientCodec`.
    group: `group.Group`.
    num_workers: of all processes.
    way: of `WAYS` for the buckets that can take it, the others gather; or
      `AUTO`, for each bucket that of the fewest bytes, but two shots only
      where they take half of the others'.

  Returns:
    Pair of functions. The first takes this process's payloads, int32 [its
    workers, words], and returns a list of tensors, one a bucket; the second,
    to be compiled, takes that list and the agreed probe and returns the average
    gradients.
  """
  chosen = choices(codec, num_workers, group.size, way)
  if all(name == 'gather' for name in chosen):
    # One collective, and kernels that decode all buckets' words.
    return (
      lambda payloads: [group.gather(payloads)],
      lambda moved, shared: codec.decode_mean(moved, shared),
    )
  sizes = [bucket.num_words for bucket in codec.buckets]

  def move(payloads):
    columns = tf.split(payloads, sizes, axis=1)
    return [
      _MOVES[name](bucket.codec, group, num_workers, words)
      for name, bucket, words in zip(
        chosen, codec.buckets, columns, strict=True
      )
    ]

  def decode(moved, shared):
    means = []
    numbers = codec.probes_of_buckets()
    for name, bucket, tensor, places in zip(
      chosen, codec.buckets, moved, numbers, strict=True
    ):
      agreed = tf.gather(shared, places)
      means += _DECODES[name](bucket, tensor, agreed, num_workers)
    return codec.in_model_order(means)

  return move, decode


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
    cheapest = min(costs, key=lambda n, c=costs: c[n] * _WEIGHTS.get(n, 1))
    chosen.append(
      cheapest if way == AUTO else way if way in costs else 'gather'
    )
  return chosen


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
  if _has_slices(bucket.codec):
    width = _slice_width(bucket.num_words, num_processes)
    places = bucket.codec.packing.elements_per_word
    back = packings.sums(num_workers).num_words(places * width)
    costs['two_shot'] = others * (own * width + back)
  return costs


def _has_slices(codec):
  """Whether a few words of a payload can be summed without the others."""
  packing = codec.packing
  return (
    codec.decode_codes is not None
    and isinstance(packing, wire.Packing)
    and packing.word_bits == 32
  )


def _gather(codec, group, num_workers, words):
  del codec, num_workers
  return group.gather(words)


def _decode_gathered(bucket, words, shared, num_workers):
  return bucket.codec.decode_sum(
    [words], shared, bucket.shapes, 1.0 / num_workers
  )


def _reduce(codec, group, num_workers, words):
  del num_workers
  return group.all_reduce(tf.reduce_sum(codec.lanes(words), axis=0))


def _decode_reduced(bucket, total, shared, num_workers):
  return bucket.codec.decode_total(
    total, num_workers, shared, bucket.shapes, 1.0 / num_workers
  )


def _two_shot(codec, group, num_workers, words):
  """Packed sums of all slices, int32 [processes, words of a slice]."""
  packing, own = codec.packing, words.shape[0]
  width = _slice_width(words.shape[1], group.size)
  back = packings.sums(num_workers)

  def sums(received):
    rows = tf.reshape(received, [num_workers, width])
    codes = planes.join(packing.unpack(tf.reshape(rows, [-1])))
    shape = [packing.elements_per_word, num_workers, width]
    flat = tf.reshape(tf.reduce_sum(tf.reshape(codes, shape), axis=1), [-1])
    places = back.elements_per_word
    row = back.width(flat.shape[0])
    flat = tf.pad(flat, [[0, row * places - flat.shape[0]]])
    return back.pack(tf.split(flat, places))

  padded = tf.pad(words, [[0, 0], [0, width * group.size - words.shape[1]]])
  slices = tf.reshape(padded, [own, group.size, width])
  received = group.all_to_all(tf.transpose(slices, [1, 0, 2]))
  packed = tf.function(sums, jit_compile=True)(received)
  return group.gather(packed[tf.newaxis])


def _decode_two_shot(bucket, packed, shared, num_workers):
  places = bucket.codec.packing.elements_per_word
  processes = packed.shape[0]
  width = _slice_width(bucket.num_words, processes)
  sums = packings.sums(num_workers).unpack(tf.reshape(packed, [-1]))
  slices = [tf.reshape(plane, [processes, -1]) for plane in sums]
  sums = tf.concat(slices, axis=1)[:, : places * width]
  sums = tf.reshape(sums, [processes, places, width])
  sums = tf.reshape(tf.transpose(sums, [1, 0, 2]), [places, -1])
  codes = tf.reshape(sums[:, : bucket.num_words], [-1])
  return bucket.codec.decode_codes(
    codes, shared, bucket.shapes, 1.0 / num_workers
  )


def _slice_width(num_words, processes):
  return -(-num_words // processes)


_MOVES = {'gather': _gather, 'reduce': _reduce, 'two_shot': _two_shot}
_DECODES = {
  'gather': _decode_gathered,
  'reduce': _decode_reduced,
  'two_shot': _decode_two_shot,
}
