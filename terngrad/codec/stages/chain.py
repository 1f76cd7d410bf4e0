"""Makes codecs of stages.

A codec is a chain of stages in the order in which data flows through them:

  FLOAT --clip--> FLOAT --quantizer--> CODES --packing--> WORDS

`chain(clip_by_stddev(2.5), ternarize(), base3())` is TernGrad and
`chain(float32_words())` is the plain gradient. Clips and scalers are each
variable's own; a bucket is quantized and packed as one vector, so that the
compiled code does not grow with the number of variables.
"""

import functools
from typing import NamedTuple

import tensorflow as tf

from terngrad.codec.stages import contract
from terngrad.codec.stages import planes
from terngrad.codec.stages import statistics
from terngrad.codec.stages import wire


def chain(*stages, group_size=0):
  """Makes a codec of stages, listed in the order of the data.

  Args:
    *stages: any number of `Clip`, at most one `Quantizer`, then one `Packing`
      that takes what comes before it.
    group_size: elements that have a clip and a scaler of their own, consecutive
      ones of a variable; 0 for one of each for the whole variable.

  Returns:
    A `Codec`.

  Raises:
    ValueError: the stages do not fit together, the message names the two; or
      there are groups, but no quantizer.
  """
  _check(stages, group_size)
  clips = [stage for stage in stages if isinstance(stage, contract.Clip)]
  quantizer = next(
    (s for s in stages if isinstance(s, contract.Quantizer)), None
  )
  packing = stages[-1]
  if clips or quantizer:
    probe = functools.partial(_local_scalers, stages, group_size)
  else:
    # Nothing to agree on, but an element that is not finite must show.
    probe = statistics.norms
  encoder = _Encoder(bool(clips), quantizer, packing, group_size)
  decode_sum, decode_sums = _decoders(quantizer, packing, group_size)
  traits = quantizer.traits if quantizer else packing.traits
  return contract.Codec(
    name=' > '.join(stage.name for stage in stages)
    + (f' in groups of {group_size}' if group_size else ''),
    probe=probe,
    encode_pieces=encoder.encode_pieces,
    decode_sum=decode_sum,
    num_words=packing.num_words,
    traits=traits._replace(lossless=False) if clips else traits,
    stages=stages,
    decode_sums=decode_sums,
    group_size=group_size,
  )


def _local_scalers(stages, group_size, gradients):
  contract.check_gradients(gradients)
  if group_size:
    groups = [statistics.of_groups(g, group_size) for g in gradients]
    return tf.concat([local_scaler(stages, stats) for stats in groups], axis=0)
  return tf.stack(
    [
      local_scaler(stages, statistics.statistics(gradient))
      for gradient in gradients
    ]
  )


class _Encoder(NamedTuple):
  """Makes words of flat gradients.

  Attributes:
    clips: whether there is a clip.
    quantizer: `contract.Quantizer`, or None.
    packing: `wire.Packing` or another one.
    group_size: see `chain`.
  """

  clips: bool
  quantizer: contract.Quantizer | None
  packing: object
  group_size: int

  def encode_pieces(self, pieces, sizes, own, shared, key):
    """See `contract.Codec`."""
    flat = pieces[0] if len(pieces) == 1 else tf.concat(pieces, axis=0)
    width = self.packing.width(sum(sizes))
    factors = self.quantizer.factor(shared) if self.quantizer else None
    if self.group_size:
      spread = functools.partial(
        planes.spread_groups, sizes=sizes, group_size=self.group_size
      )
      flat = self._scaled(flat, own, factors, spread)
    count = self.packing.elements_per_word
    at_once = tf.executing_eagerly()
    if at_once:
      # Compiled, a plane at a time needs no memory for the others. One by one,
      # operations on all planes are fewer.
      width *= count
    positions = tf.bitcast(tf.range(width), tf.uint32)
    codes = []
    for place in range(1 if at_once else count):
      plane = planes.plane(flat, place, width)
      if not self.group_size:
        spread = functools.partial(
          planes.spread, sizes=sizes, place=place, width=width
        )
        plane = self._scaled(plane, own, factors, spread)
      if self.quantizer:
        # Counting from the plane's start: the sum of a range and a constant
        # would be a constant as large as the plane.
        start = [place * width] + [0] * (key.shape[0] - 1)
        start = tf.constant(start, tf.uint32)
        plane = self.quantizer.quantize(plane, positions, key + start)
      codes.append(plane)
    return self.packing.pack(tf.split(codes[0], count) if at_once else codes)

  def _scaled(self, values, own, factors, spread):
    """Values, clipped and in the units that the quantizer takes.

    Args:
      values: float32 [w].
      own: the worker's probe.
      factors: what the quantizer multiplies values with, one a number of the
        probe.
      spread: takes such numbers, returns for each value that of its variable.
    """
    if self.clips:
      # The probe of a chain that clips is the largest clipped magnitude, so
      # that clipping at it is clipping at the limits.
      limit = spread(own)
      values = tf.clip_by_value(values, -limit, limit)
    return values * spread(factors) if self.quantizer else values


def local_scaler(stages, stats):
  """What a worker asks for in the probe, from the statistics of a gradient.

  Args:
    stages: of a chain with clips or a quantizer.
    stats: `statistics.Statistics`, of one variable or of several as vectors.

  Returns:
    float32, shape of the statistics.
  """
  for stage in stages:
    if isinstance(stage, contract.Clip):
      limit = stage.limit(stats)
      stats = stats._replace(max_abs=_lesser(stats.max_abs, limit))
    if isinstance(stage, contract.Quantizer):
      return stage.scaler(stats)
  return stats.max_abs


def _decoders(quantizer, packing, group_size):
  """`decode_sum` and `decode_sums` of `contract.Codec`."""

  def decode_sum(parts, shared, shapes, scale=1.0):
    size = sum(tf.TensorShape(shape).num_elements() for shape in shapes)
    if packing.max_workers is None:
      sums = wire.sum_planes(packing, parts, size)
    else:
      wire.check_length(packing, parts, size)
      # Words add: one sum is unpacked instead of every payload.
      totals = [tf.reduce_sum(packing.lanes(part), axis=0) for part in parts]
      workers = sum(part.shape[0] for part in parts)
      sums = packing.sums_of_total(tf.add_n(totals), workers)
    return decode_sums(sums, shared, shapes, scale)

  def decode_sums(sums, shared, shapes, scale=1.0):
    return gradients_of(quantizer, sums, shared, shapes, scale, group_size)

  if quantizer:
    summable = quantizer.traits.additive
  else:
    summable = isinstance(packing, wire.Packing)
  return decode_sum, decode_sums if summable else None


def gradients_of(quantizer, sums, shared, shapes, scale, group_size=0):
  """The gradients that sums of codes, or of floats, stand for.

  Args:
    quantizer: `contract.Quantizer`, or None where `sums` are floats.
    sums: int32 or float32 [places], those past the last element included.
    shared: float32 [p], the agreed probe.
    shapes: the v shapes.
    scale: float; the gradients are multiplied by it.
    group_size: see `contract.Codec`.

  Returns:
    List of v float32.
  """
  sizes = [tf.TensorShape(shape).num_elements() for shape in shapes]
  sums = sums[: sum(sizes)]
  if group_size:
    scalers = planes.spread_groups(shared, sizes, group_size)
    sums = quantizer.dequantize(sums, scalers)
  sums = tf.split(sums, sizes)
  if quantizer and not group_size:
    sums = [
      quantizer.dequantize(total, shared[i]) for i, total in enumerate(sums)
    ]
  if scale != 1.0:  # Even a product with 1 would flush subnormals.
    sums = [total * scale for total in sums]
  return [
    tf.reshape(total, shape) for total, shape in zip(sums, shapes, strict=True)
  ]


def _check(stages, group_size):
  """Raises ValueError where `stages` make no codec."""
  quantizes = any(isinstance(stage, contract.Quantizer) for stage in stages)
  if group_size < 0 or (group_size and not quantizes):
    raise ValueError(
      'group_size: expected the elements of a scaler beside a quantizer, or 0, '
      f'received {group_size}. Use 64 to 4096 with ternarize().'
    )
  domain = contract.FLOAT
  for before, stage in zip((None, *stages), stages, strict=False):
    takes, gives = stage.domain
    if takes != domain:
      raise ValueError(
        f'Stage {stage.name} takes {takes}, received {domain} from '
        f'{before.name if before else "the gradient"}. List the stages in the '
        'order clip, quantizer, packing.'
      )
    if (
      isinstance(stage, contract.Quantizer)
      and stage.clips
      and before is not None
    ):
      raise ValueError(
        f'{stage.name} bounds the elements itself; expected no stage before '
        f'it, received {before.name}. Leave one of the two out.'
      )
    if isinstance(before, contract.Quantizer) and before.levels > stage.levels:
      raise ValueError(
        f'{stage.name} holds codes up to {stage.levels}, {before.name} makes '
        f'codes up to {before.levels}. Choose a packing with more levels.'
      )
    domain = gives
  if domain != contract.WORDS:
    last = stages[-1].name if stages else 'nothing'
    raise ValueError(
      f'A codec must end in words, received {domain} at the end ({last}). Add '
      'a packing: base3() or two_bit() for codes, float32_words() for floats.'
    )


def _lesser(largest, limit):
  """The lesser of the two; keeps a `largest` that is not a number."""
  return tf.where(largest > limit, limit, largest)
