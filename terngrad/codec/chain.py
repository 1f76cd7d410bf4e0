"""Makes codes of stages.

A code is a chain of stages in the order in which data flows through them:

  FLOAT --clip--> FLOAT --quantizer--> CODES --packing--> WORDS

`chain(clip_by_stddev(2.5), ternarize(), base3())` is TernGrad and
`chain(float32_words())` is the plain gradient. Clips and scalers are each
variable's own; a bucket is quantized and packed as one vector, so that the
compiled code does not grow with the number of variables.
"""

import functools
from collections.abc import Callable
from collections.abc import Sequence
from typing import cast

import tensorflow as tf

from terngrad import native
from terngrad.codec import coded
from terngrad.codec import method
from terngrad.codec import wrapper
from terngrad.codec.stages import chain as chains
from terngrad.codec.stages import contract
from terngrad.codec.stages import planes
from terngrad.codec.stages import random_bits
from terngrad.codec.stages import statistics
from terngrad.codec.stages import ternary
from terngrad.codec.stages import wire
from terngrad.native import ops

# The quantizers that kernels know, and the digits that they decode.
_TERNARY = (ternary.Ternarize, ternary.ByStddev)
_DECODED = ((3, 20), (4, 16))


def chain(*stages: contract.Stage, group_size: int = 0) -> 'Chain':
  """Makes a code of stages, listed in the order of the data.

  Args:
    *stages: any number of `Clip`, at most one `Quantizer`, then one `Packing`
      that takes what comes before it.
    group_size: elements that have a clip and a scaler of their own, consecutive
      ones of a variable; 0 for one of each for the whole variable.

  Returns:
    A `coded.Code`.

  Raises:
    ValueError: the stages do not fit together, the message names the two; or
      there are groups, but no quantizer.
  """
  return Chain(stages, group_size)


class Chain(coded.Code):
  """See `chain`."""

  def __init__(
    self, stages: Sequence[contract.Stage], group_size: int = 0
  ) -> None:
    """See `chain`."""
    chains.check(stages, group_size)
    self.stages, self.group_size = stages, group_size
    self.name = ' > '.join(stage.name for stage in stages)
    if group_size:
      self.name += f' in groups of {group_size}'
    self.clips = [s for s in stages if isinstance(s, contract.Clip)]
    self.max_workers = self.packing.max_workers
    quantizer = self.quantizer
    # Packings of codes have none, and come after a quantizer.
    self.traits = cast(contract.Traits, (quantizer or self.packing).traits)
    if self.clips:
      self.traits = self.traits._replace(lossless=False)
    if quantizer:
      self.strata, self.summable = quantizer.strata, quantizer.traits.additive
    else:
      self.summable = isinstance(self.packing, wire.Packing)

  @property
  def packing(self) -> wire.Packing | wire.VariablePacking:
    """The last stage: a `wire.CompositePacking` is a code by itself."""
    return cast(wire.Packing | wire.VariablePacking, self.stages[-1])

  def probe(self, gradients: Sequence[tf.Tensor]) -> tf.Tensor:
    """The local scalers, or clipped magnitudes; see `coded.Code`."""
    if not (self.clips or self.quantizer):
      # Nothing to agree on, but an element that is not finite must show.
      return statistics.norms(gradients)
    contract.check_gradients(gradients)
    if self.group_size:
      groups = [statistics.of_groups(g, self.group_size) for g in gradients]
      scalers = [chains.local_scaler(self.stages, stats) for stats in groups]
      return tf.concat(scalers, axis=0)
    stats = [statistics.statistics(gradient) for gradient in gradients]
    return tf.stack([chains.local_scaler(self.stages, one) for one in stats])

  def encode_pieces(
    self,
    pieces: Sequence[tf.Tensor],
    sizes: Sequence[int],
    own: tf.Tensor,
    shared: tf.Tensor,
    key: tf.Tensor,
  ) -> tf.Tensor:
    """See `coded.Code`."""
    flat = method.flat(pieces)
    packing, quantizer = self.packing, self.quantizer
    width = packing.width(sum(sizes))
    factors = quantizer.factor(shared) if quantizer else None
    if self.group_size:
      spread = functools.partial(
        planes.spread_groups, sizes=sizes, group_size=self.group_size
      )
      flat = self._scaled(flat, own, factors, spread)
    count = packing.elements_per_word
    # Compiled, a plane at a time needs no memory for the others. One by one,
    # operations on all planes are fewer.
    at_once = tf.executing_eagerly()
    width *= count if at_once else 1
    positions = tf.bitcast(tf.range(width), tf.uint32)
    codes = []
    for place in range(1 if at_once else count):
      plane = planes.plane(flat, place, width)
      if not self.group_size:
        spread = functools.partial(
          planes.spread, sizes=sizes, place=place, width=width
        )
        plane = self._scaled(plane, own, factors, spread)
      if quantizer:
        # Counting from the plane's start: the sum of a range and a constant
        # would be a constant as large as the plane.
        plane_key = random_bits.from_element(key, place * width)
        plane = quantizer.quantize(plane, positions, plane_key)
      codes.append(plane)
    return packing.pack(tf.split(codes[0], count) if at_once else codes)

  def _scaled(
    self,
    values: tf.Tensor,
    own: tf.Tensor,
    factors: tf.Tensor | None,
    spread: Callable[[tf.Tensor], tf.Tensor],
  ) -> tf.Tensor:
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
    return values if factors is None else values * spread(factors)

  def decode_sum(
    self,
    parts: Sequence[tf.Tensor],
    shared: tf.Tensor,
    shapes: method.Shapes,
    scale: float = 1.0,
  ) -> list[tf.Tensor]:
    """See `coded.Code`."""
    packing, size = self.packing, sum(method.sizes_of(shapes))
    if not isinstance(packing, wire.Packing) or packing.max_workers is None:
      sums = wire.sum_planes(packing, parts, size)
    else:
      wire.check_length(packing.name, packing.num_words(size), parts, size)
      # Words add: one sum is unpacked instead of every payload.
      totals = [tf.reduce_sum(packing.lanes(part), axis=0) for part in parts]
      workers = sum(part.shape[0] for part in parts)
      sums = packing.sums_of_total(tf.add_n(totals), workers)
    return self.decode_sums(sums, shared, shapes, scale)

  def decode_sums(
    self,
    sums: tf.Tensor,
    shared: tf.Tensor,
    shapes: method.Shapes,
    scale: float = 1.0,
  ) -> list[tf.Tensor]:
    """See `coded.Code`."""
    return chains.gradients_of(
      self.quantizer, sums, shared, shapes, scale, self.group_size
    )

  def on_kernels(self) -> method.Method:
    """See `method.Method`.

    Every ternary code is probed by a kernel, and sums of its codes are decoded
    by one. Those of 32-bit digits are encoded by one, and base3 and two_bit
    decoded too; the other functions are compiled apart.
    """
    if type(self) is not Chain or not native.available():
      # A subclass may compute otherwise than kernels do.
      return super().on_kernels()
    if self.summable and not self.quantizer:
      return _Summed.of(self)
    if type(self.quantizer) not in _TERNARY or self.group_size:
      return self
    digits = getattr(self.packing, 'digits', None)
    if digits in _DECODED:
      return _Ternary(self, digits)
    return _Encoded(self, digits) if digits else _Probed(self)

  def on_gpus(self) -> method.Method:
    """Probes read gradients once, and agree to 1e-6; see `method.Method`."""
    if type(self) is not Chain or self.group_size:
      return self
    return _OnePass.of(self) if self.quantizer or self.clips else self


class _OnePass(Chain):
  def probe(self, gradients: Sequence[tf.Tensor]) -> tf.Tensor:
    stats = [statistics.in_one_pass(gradient) for gradient in gradients]
    return tf.stack([chains.local_scaler(self.stages, one) for one in stats])


class _Summed(Chain):
  unit = contract.ONE


class _Probed(Chain):
  """Ternary codes with kernels for probes and sums of codes."""

  unit = contract.SCALER
  _compiled: Sequence[str] = ('encode_pieces', 'decode_sum')

  def __init__(self, code: Chain) -> None:
    vars(self).update(vars(code))
    wrapper.compile_apart(self, code, self._compiled)

  def decode_sums(
    self,
    sums: tf.Tensor,
    shared: tf.Tensor,
    shapes: method.Shapes,
    scale: float = 1.0,
  ) -> list[tf.Tensor]:
    return ops.scale_sums(sums, shared, shapes, scale)

  def probe(self, gradients: Sequence[tf.Tensor]) -> tf.Tensor:
    contract.check_gradients(gradients)
    quantizer = self.quantizer
    factors = [clip.clip_factor for clip in self.clips] or [0.0]
    several = quantizer is None or quantizer.clips or len(factors) > 1
    if several or factors[0] is None:
      stats = statistics.Statistics(*ops.statistics(gradients))
      return chains.local_scaler(self.stages, stats)
    return ops.clipped(gradients, factors[0])


class _Encoded(_Probed):
  """With a kernel that encodes 32-bit digits."""

  _compiled: Sequence[str] = ('decode_sum',)

  def __init__(self, code: Chain, digits: tuple[int, int]) -> None:
    super().__init__(code)
    self.options = ops.EncodeOptions(
      *digits, clips=bool(self.clips), stratified=bool(self.strata)
    )

  @property
  def encode_pieces(self) -> Callable[..., tf.Tensor]:
    # The kernel's own function, so that nothing is between it and `send`.
    return self.options.encode


class _Ternary(_Encoded):
  """With a kernel that decodes them too: base3 and two_bit."""

  digits: ops.Digits
  _compiled = ()

  def __init__(self, code: Chain, digits: tuple[int, int]) -> None:
    super().__init__(code, digits)
    self.digits = ops.Digits(*digits)

  @property
  def decode_sum(self) -> Callable[..., list[tf.Tensor]]:
    # See `encode_pieces`.
    return self.digits.decode_sum
