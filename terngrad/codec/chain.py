"""Builds codes from stages.

A code is a chain of stages, listed in data-flow order:

  FLOAT --clip--> FLOAT --quantizer--> CODES --packing--> WORDS

`chain(clip_by_stddev(2.5), ternarize(), base3())` is TernGrad and
`chain(float32_words())` sends the plain gradient. Each variable has its clip
limit and its scaler. A bucket is quantized and packed as one vector, so that
the size of the compiled code does not depend on the number of variables.
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
from terngrad.codec.stages import float_words
from terngrad.codec.stages import planes
from terngrad.codec.stages import random_bits
from terngrad.codec.stages import statistics
from terngrad.codec.stages import ternary
from terngrad.codec.stages import transport
from terngrad.codec.stages import wire
from terngrad.native import gpu
from terngrad.native import ops

# The quantizers and the word formats that kernels support.
_TERNARY = (ternary.Ternarize, ternary.ByStddev)
_DECODED = ((3, 20), (4, 16))


def chain(*stages: contract.Stage, group_size: int = 0) -> 'Chain':
  """Builds a code from stages in data-flow order.

  Args:
    *stages: any number of `Clip`, at most one `Quantizer`, then one `Packing`
      that accepts the output of the stage before it.
    group_size: consecutive elements of a variable that share a clip limit and a
      scaler; 0 for the whole variable.

  Returns:
    A `coded.Code`.

  Raises:
    ValueError: two stages do not fit together (the message names both), or
      `group_size` is set without a quantizer.
  """
  return Chain(stages, group_size)


class Chain(coded.Code):
  """A code that applies stages in order; built by `chain`."""

  def __init__(
    self, stages: Sequence[contract.Stage], group_size: int = 0
  ) -> None:
    """Checks the stages, with the arguments of `chain`."""
    chains.check(stages, group_size)
    self.stages, self.group_size = stages, group_size
    self.name = ' > '.join(stage.name for stage in stages)
    if group_size:
      self.name += f' in groups of {group_size}'
    self.clips = [s for s in stages if isinstance(s, contract.Clip)]
    self.max_workers = self.packing.max_workers
    quantizer = self.quantizer
    # Packings of codes have no traits; they always follow a quantizer.
    self.traits = cast(contract.Traits, (quantizer or self.packing).traits)
    if self.clips:
      self.traits = self.traits._replace(lossless=False)
    if quantizer:
      self.strata, self.summable = quantizer.strata, quantizer.traits.additive
    else:
      self.summable = isinstance(self.packing, wire.Packing)

  @property
  def packing(self) -> wire.Packing | wire.VariablePacking:
    """The last stage; chains contain no `wire.CompositePacking`."""
    return cast(wire.Packing | wire.VariablePacking, self.stages[-1])

  @property
  def is_plain(self) -> bool:
    """True for a chain of `float32_words` alone."""
    # A subclass may compute something else.
    return type(self) in (Chain, _Summed) and [
      type(stage) for stage in self.stages
    ] == [float_words.Float32Words]

  def probe(self, gradients: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns local scalers, or clipped maxima or norms without a quantizer."""
    if not (self.clips or self.quantizer):
      # No number is agreed on; norms only detect elements that are not finite.
      return statistics.norms(gradients)
    contract.check_gradients(gradients)
    if self.group_size:
      groups = [
        statistics.group_statistics(g, self.group_size) for g in gradients
      ]
      scalers = [chains.local_scaler(self.stages, stats) for stats in groups]
      return tf.concat(scalers, axis=0)
    stats = [statistics.statistics(gradient) for gradient in gradients]
    return tf.stack([chains.local_scaler(self.stages, one) for one in stats])

  def encode_pieces(
    self,
    pieces: Sequence[tf.Tensor],
    sizes: Sequence[int],
    local_probe: tf.Tensor,
    shared_probe: tf.Tensor,
    key: tf.Tensor,
  ) -> tf.Tensor:
    """Clips, quantizes and packs the gradients, one plane at a time."""
    flat = method.flat(pieces)
    packing, quantizer = self.packing, self.quantizer
    width = packing.width(sum(sizes))
    factors = quantizer.factor(shared_probe) if quantizer else None
    if self.group_size:
      spread = functools.partial(
        planes.spread_groups, sizes=sizes, group_size=self.group_size
      )
      flat = self._scaled(flat, local_probe, factors, spread)
    count = packing.elements_per_word
    # Compiled code processes one plane at a time, which needs less memory.
    # Eager code processes all planes at once, which takes fewer operations.
    is_eager = tf.executing_eagerly()
    width *= count if is_eager else 1
    positions = tf.bitcast(tf.range(width if quantizer else 0), tf.uint32)
    codes = []
    rows = planes.split(flat, 1 if is_eager else count, width)
    for index, plane in enumerate(rows):
      if not self.group_size:
        spread = functools.partial(
          planes.spread, sizes=sizes, index=index, width=width
        )
        plane = self._scaled(plane, local_probe, factors, spread)
      if quantizer:
        # The key includes the start of the plane. XLA would fold a range plus
        # a constant into a constant as large as the plane.
        plane_key = random_bits.advance_key(key, index * width)
        plane = quantizer.quantize(plane, positions, plane_key)
      codes.append(plane)
    return packing.pack(tf.split(codes[0], count) if is_eager else codes)

  def _scaled(
    self,
    values: tf.Tensor,
    local_probe: tf.Tensor,
    factors: tf.Tensor | None,
    spread: Callable[[tf.Tensor], tf.Tensor],
  ) -> tf.Tensor:
    """Clips values and multiplies them with the quantizer's factors.

    Args:
      values: float32 [w].
      local_probe: float32 [p], the local probe.
      factors: float32 [p], from `Quantizer.factor`; None without a quantizer.
      spread: takes float32 [p] and returns the number of each value's variable
        or group.
    """
    if self.clips:
      # The probe of a chain with clips is the largest clipped magnitude. It is
      # therefore a valid clip limit.
      limit = spread(local_probe)
      values = tf.clip_by_value(values, -limit, limit)
    return values if factors is None else values * spread(factors)

  @transport.accepts_float32
  def decode_sum(
    self,
    parts: Sequence[tf.Tensor],
    shared_probe: tf.Tensor,
    shapes: method.Shapes,
    scale: float = 1.0,
  ) -> list[tf.Tensor]:
    """Unpacks the payloads, adds them and scales the sums."""
    packing, size = self.packing, sum(method.sizes_of(shapes))
    if not isinstance(packing, wire.Packing) or packing.max_workers is None:
      sums = wire.sum_planes(packing, parts, size)
    else:
      wire.check_length(packing.name, packing.num_words(size), parts, size)
      # The words can be added, so that only their sum is unpacked.
      totals = [tf.reduce_sum(packing.lanes(part), axis=0) for part in parts]
      workers = sum(part.shape[0] for part in parts)
      sums = packing.sums_of_total(tf.add_n(totals), workers)
    return self.decode_sums(sums, shared_probe, shapes, scale)

  def decode_sums(
    self,
    sums: tf.Tensor,
    shared_probe: tf.Tensor,
    shapes: method.Shapes,
    scale: float = 1.0,
  ) -> list[tf.Tensor]:
    """Scales sums of codes, or of floats, to gradients."""
    return chains.gradients_of(
      self.quantizer, sums, shared_probe, shapes, scale, self.group_size
    )

  def on_kernels(self) -> method.Method:
    """Returns the variant with the kernels that support this chain.

    Kernels compute the probe of every ternary code and decode the sums of its
    codes. They encode packings with 32-bit digits, and they decode base3 and
    two_bit. XLA compiles the remaining functions separately.
    """
    if type(self) is not Chain or not native.available():
      # A subclass may compute something else than the kernels.
      return super().on_kernels()
    if self.summable and not self.quantizer:
      return _Summed.from_code(self)
    return self._accelerated(on_gpus=False) or self

  def on_gpus(self) -> method.Method:
    """Returns the GPU kernels' variant; else one whose probe agrees to 1e-6."""
    if type(self) is not Chain or self.group_size:
      return self
    fast = self._accelerated(on_gpus=True) if gpu.available() else None
    # A packing alone computes no statistics.
    return fast or (_OnePass.from_code(self) if self.stages[1:] else self)

  def _accelerated(self, on_gpus: bool) -> 'Chain | None':
    """Returns the variant of a ternary code with kernels; None for others."""
    if type(self.quantizer) not in _TERNARY or self.group_size:
      return None
    digits = _digits_of(self)
    kind = _Ternary if digits in _DECODED else _Encoded if digits else _Probed
    return kind(self, on_gpus)


def _digits_of(code: Chain) -> tuple[int, ...]:
  # () for words of other digits.
  return getattr(code.packing, 'digits', None) or ()


class _OnePass(Chain):
  def probe(self, gradients: Sequence[tf.Tensor]) -> tf.Tensor:
    stats = [statistics.one_pass_statistics(gradient) for gradient in gradients]
    return tf.stack([chains.local_scaler(self.stages, one) for one in stats])


class _Summed(Chain):
  unit = contract.ONE


class _Probed(Chain):
  """Ternary codes with kernels for the probe and for sums of codes."""

  unit = contract.SCALER
  _compiled: Sequence[str] = ('encode_pieces', 'decode_sum')

  def __init__(self, code: Chain, on_gpus: bool) -> None:
    vars(self).update(vars(code))
    self._uses_gpus = on_gpus
    wrapper.compile_separately(self, code, self._compiled)

  def decode_sums(
    self,
    sums: tf.Tensor,
    shared_probe: tf.Tensor,
    shapes: method.Shapes,
    scale: float = 1.0,
  ) -> list[tf.Tensor]:
    on_gpus = bool(self._uses_gpus)
    return ops.scale_sums(sums, shared_probe, shapes, scale, on_gpus)

  def probe(self, gradients: Sequence[tf.Tensor]) -> tf.Tensor:
    contract.check_gradients(gradients)
    quantizer = self.quantizer
    factors = [clip.clip_factor for clip in self.clips] or [0.0]
    several = quantizer is None or quantizer.clips or len(factors) > 1
    on_gpus = bool(self._uses_gpus)
    if several or factors[0] is None:
      stats = statistics.Statistics(*ops.statistics(gradients, on_gpus))
      return chains.local_scaler(self.stages, stats)
    return ops.max_clipped(gradients, factors[0], on_gpus)


class _Encoded(_Probed):
  """Adds a kernel that encodes 32-bit digits."""

  _compiled: Sequence[str] = ('decode_sum',)

  def __init__(self, code: Chain, on_gpus: bool) -> None:
    super().__init__(code, on_gpus)
    radix, places = _digits_of(code)
    self.options = ops.EncodeOptions(
      radix, places, bool(self.clips), bool(self.strata), on_gpus
    )

  @property
  def encode_pieces(self) -> Callable[..., tf.Tensor]:
    # The kernel's method itself, to avoid another Python call.
    return self.options.encode


class _Ternary(_Encoded):
  """Adds a kernel that decodes the words: base3 and two_bit."""

  digits: ops.Digits
  _compiled = ()

  def __init__(self, code: Chain, on_gpus: bool) -> None:
    super().__init__(code, on_gpus)
    radix, places = _digits_of(code)
    kind = ops.GpuDigits if on_gpus else ops.Digits
    self.digits = kind(radix, places)

  @property
  def decode_sum(self) -> Callable[..., list[tf.Tensor]]:
    return self.digits.decode_sum

  def _requantized(
    self,
    words: tf.Tensor,
    local_probe: tf.Tensor,
    shared_probe: tf.Tensor,
    shapes: method.Shapes,
    key: tf.Tensor,
  ) -> tf.Tensor:
    probes = local_probe, shared_probe
    if not self._uses_gpus:
      return super()._requantized(words, *probes, shapes, key)
    return self.options.requantize(words, method.sizes_of(shapes), *probes, key)
