"""Makes codecs of stages.

A codec is a chain of stages in the order in which data flows through them:

  FLOAT --clip--> FLOAT --quantizer--> CODES --packing--> WORDS

`chain(clip_by_stddev(2.5), ternarize(), base3())` is TernGrad and
`chain(float32_words())` is the plain gradient. Clips and scalers are each
variable's own; a bucket is quantized and packed as one vector, so that the
compiled code does not grow with the number of variables.

Layout: the elements of a bucket are dealt to words in planes. With `k`
elements in a word and `w` words, plane `p` holds the elements `p * w` to
`(p + 1) * w - 1` and fills place `p` of every word, so that packing is
elementwise work on whole planes. The places past the end hold the code zero.
"""

import tensorflow as tf

from terngrad.codec import contract
from terngrad.codec import statistics


def chain(*stages):
  """Makes a codec of stages, listed in the order of the data.

  Args:
    *stages: any number of `Clip`, at most one `Quantizer`, then one `Packing`
      that takes what comes before it.

  Returns:
    A `Codec`.

  Raises:
    ValueError: the stages do not fit together; the message names the two.
  """
  _check(stages)
  clips = [stage for stage in stages if isinstance(stage, contract.Clip)]
  quantizer = next(
    (s for s in stages if isinstance(s, contract.Quantizer)), None
  )
  packing = stages[-1]

  def probe(gradients):
    if not (clips or quantizer):
      # Nothing to agree on, but an element that is not finite must show.
      return tf.stack([statistics.norm(gradient) for gradient in gradients])
    return tf.stack(
      [wish(stages, statistics.statistics(gradient)) for gradient in gradients]
    )

  def encode_pieces(pieces, sizes, own, shared, key):
    flat = pieces[0] if len(pieces) == 1 else tf.concat(pieces, axis=0)
    width = packing.width(sum(sizes))
    factors = quantizer.factor(shared) if quantizer else None
    positions = tf.bitcast(tf.range(width), tf.uint32)
    planes = []
    for place in range(packing.elements_per_word):
      plane = _plane(flat, place, width)
      if clips:
        # The probe of a chain that clips is the largest clipped magnitude, so
        # that clipping at it is clipping at the limits.
        limit = _spread(own, sizes, place, width)
        plane = tf.clip_by_value(plane, -limit, limit)
      if quantizer:
        scaled = plane * _spread(factors, sizes, place, width)
        # Counting from the plane's start: the sum of a range and a constant
        # would be a constant as large as the plane.
        start = tf.constant([place * width, 0], tf.uint32)
        plane = quantizer.quantize(scaled, positions, key + start)
      planes.append(plane)
    return packing.pack(planes)

  traits = quantizer.traits if quantizer else packing.traits
  decode_sum, decode_total = _decoders(quantizer, packing)
  return contract.Codec(
    name=' > '.join(stage.name for stage in stages),
    probe=probe,
    encode_pieces=encode_pieces,
    decode_sum=decode_sum,
    num_words=packing.num_words,
    traits=traits._replace(lossless=False) if clips else traits,
    stages=stages,
    decode_total=decode_total,
  )


def wish(stages, stats):
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


def _decoders(quantizer, packing):
  """`decode_sum` and `decode_total` of `contract.Codec`."""

  def decode_sum(parts, shared, shapes, scale=1.0):
    if packing.max_workers is None:
      size = sum(tf.TensorShape(shape).num_elements() for shape in shapes)
      sums = sum_planes(packing, parts, size)
      return gradients_of(quantizer, sums, shared, shapes, scale)
    # Words add: one sum is unpacked instead of every payload.
    totals = [tf.reduce_sum(packing.lanes(part), axis=0) for part in parts]
    workers = sum(part.shape[0] for part in parts)
    return decode_total(tf.add_n(totals), workers, shared, shapes, scale)

  def decode_total(total, num_workers, shared, shapes, scale=1.0):
    if num_workers > packing.max_workers:
      raise ValueError(
        f'{packing.name}: expected the payloads of at most '
        f'{packing.max_workers} workers, received {num_workers}. Make the '
        f'codec with workers={num_workers}.'
      )
    words = tf.reshape(tf.bitcast(total, tf.int32), [-1])
    codes = tf.concat(packing.unpack(words), axis=0)
    # Every worker's digit is its code + 1; unpacking takes one 1 away.
    sums = codes - (num_workers - 1)
    return gradients_of(quantizer, sums, shared, shapes, scale)

  summable = packing.max_workers is not None
  return decode_sum, decode_total if summable else None


def gradients_of(quantizer, sums, shared, shapes, scale):
  """The gradients that sums of codes, or of floats, stand for.

  Args:
    quantizer: `contract.Quantizer`, or None where `sums` are floats.
    sums: int32 or float32 [places], those past the last element included.
    shared: float32 [v], the agreed probe.
    shapes: the v shapes.
    scale: float; the gradients are multiplied by it.

  Returns:
    List of v float32.
  """
  sizes = [tf.TensorShape(shape).num_elements() for shape in shapes]
  sums = tf.split(sums[: sum(sizes)], sizes)
  if quantizer:
    sums = [
      quantizer.dequantize(total, shared[i]) for i, total in enumerate(sums)
    ]
  if scale != 1.0:  # Even a product with 1 would flush subnormals.
    sums = [total * scale for total in sums]
  return [
    tf.reshape(total, shape) for total, shape in zip(sums, shapes, strict=True)
  ]


def _check(stages):
  """Raises ValueError where `stages` make no codec."""
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


def sum_planes(packing, parts, num_elements):
  """Sums what payloads unpack to, as one vector of `packing`'s places.

  Payloads are unpacked one at a time and added in place in the order of the
  workers, so that memory does not grow with them and floats have one order.

  Args:
    packing: `contract.Packing` or `contract.VariablePacking`.
    parts: list of int32 [n, w], see `contract.Codec.decode_sum`.
    num_elements: of the bucket.

  Returns:
    Of the packing's dtype, [num_elements] and the places past the end.
  """

  def add(sums, row, some):
    for part in some:
      planes = packing.planes(part[row], num_elements)
      sums = [a + b for a, b in zip(sums, planes, strict=True)]
    return sums

  counts = [part.shape[0] for part in parts]
  sums = add(packing.planes(parts[0][0], num_elements), 0, parts[1:])
  if min(counts) > 1:
    _, sums = tf.while_loop(
      lambda row, _: row < min(counts),
      lambda row, sums: (row + 1, add(sums, row, parts)),
      (tf.constant(1), sums),
      parallel_iterations=1,
    )
  longer = [part for part in parts if part.shape[0] > min(counts)]
  return tf.concat(add(sums, min(counts), longer), axis=0)


def _plane(flat, place, width):
  """Elements `place * width` onwards, float32 [width], zeros past the end."""
  size = flat.shape.num_elements()
  start = min(place * width, size)
  stop = min(start + width, size)
  plane = flat[start:stop]
  missing = width - (stop - start)
  return tf.pad(plane, [[0, missing]]) if missing else plane


def _spread(values, sizes, place, width):
  """Each variable's value for the elements of a plane.

  Args:
    values: float32 [v].
    sizes: list of v int, the elements of each variable.
    place: of the plane.
    width: elements of a plane.

  Returns:
    float32 [] where the plane lies in one variable, as most do in a net whose
    elements are in a few large ones; else float32 [width].
  """
  pieces = []
  start, stop = place * width, min((place + 1) * width, sum(sizes))
  end = 0
  for i, size in enumerate(sizes):
    begin, end = end, end + size
    count = min(stop, end) - max(start, begin)
    if count > 0:
      pieces.append([i, count])
  if not pieces:
    return tf.constant(0.0)
  if len(pieces) == 1:
    return values[pieces[0][0]]
  pieces[-1][1] += width - (stop - start)
  return tf.concat([tf.fill([n], values[i]) for i, n in pieces], axis=0)
