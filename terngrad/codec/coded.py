"""Codes: methods in which each worker sends one payload in one round."""

import abc
from collections.abc import Sequence
from typing import TYPE_CHECKING
from typing import cast

import tensorflow as tf

from terngrad import aliases
from terngrad import native
from terngrad.codec import method
from terngrad.codec import wrapper
from terngrad.codec.stages import contract
from terngrad.codec.stages import random_bits
from terngrad.codec.stages import statistics
from terngrad.codec.stages import transport
from terngrad.codec.stages import wire
from terngrad.native import gpu

if TYPE_CHECKING:
  from typing_extensions import Self

# The argument names of 0.2.
_PROBES = aliases.renamed_arguments(own='local_probe', shared='shared_probe')


class Code(method.Method):
  """A method with one message per worker and no state.

  A payload is one flat int32 tensor of words, because TensorFlow's collectives
  do not support narrower integers. A code that sends floats sends their bits as
  words.

  Subclasses define `name`, `traits`, `encode_pieces` and `decode_sum`. Without
  `stages` they also define `num_words`. `chain.chain` builds codes from stages.

  Attributes:
    stages: the stages of the chain; the last one is the packing.
    group_size: elements of a variable that share a scaler; 0 for one scaler per
      variable.
    summable: True if the gradients follow from the sum of the packed values.
      The code must then implement `decode_sums`.
    carries: True if workers encode with the local probe at once and call
      `requantize` when the shared probe is known.
  """

  # Whether the kernels are those for GPUs; None for codes without any.
  _uses_gpus: bool | None = None
  # Whether there are kernels for CPUs too.
  _is_for_cpus: bool = True
  estimates = True
  any_origin = True
  stages: Sequence[contract.Stage] = ()
  group_size: int = 0
  summable: bool = False
  _twin: 'type[Code] | None'

  def __init_subclass__(cls, twin_of: 'type[Code] | None' = None) -> None:
    """Registers the class as the variant with native kernels of `twin_of`."""
    super().__init_subclass__()
    if twin_of:
      twin_of._twin = cls

  @classmethod
  def from_code(cls, code: 'Code') -> 'Self':
    """Returns an instance of this class with the attributes of another code."""
    made = cls.__new__(cls)
    vars(made).update(vars(code))
    return made

  @property
  def packing(self) -> method.AnyPacking | None:
    """The last stage. None without stages: all `num_words` are sent."""
    return cast(method.AnyPacking, self.stages[-1]) if self.stages else None

  @property
  def quantizer(self) -> contract.Quantizer | None:
    """The first `contract.Quantizer` among the stages, or None."""
    found = (s for s in self.stages if isinstance(s, contract.Quantizer))
    return next(found, None)

  def probe(self, gradients: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns the local probe; workers agree on the elementwise maximum.

    Args:
      gradients: v float32 of any static shapes.

    Returns:
      float32 [p], `num_probes` numbers per variable. A number is not finite if
      an element that it covers is not finite.
    """
    return statistics.norms(gradients)

  @abc.abstractmethod
  def encode_pieces(
    self,
    pieces: Sequence[tf.Tensor],
    sizes: Sequence[int],
    local_probe: tf.Tensor,
    shared_probe: tf.Tensor,
    key: tf.Tensor,
  ) -> tf.Tensor:
    """Encodes flat gradients without checks; returns int32 [w].

    `pieces` are flat float32 tensors, one per variable or one for the bucket.
    `sizes` are the elements of the v variables. The other arguments are those
    of `encode`.
    """

  @abc.abstractmethod
  def decode_sum(
    self,
    parts: Sequence[tf.Tensor],
    shared_probe: tf.Tensor,
    shapes: method.Shapes,
    scale: float = 1.0,
  ) -> list[tf.Tensor]:
    """Decodes payloads and returns the sum over workers times `scale`.

    Args:
      parts: the payloads of n workers as m tensors int32 [n / m, w], in the row
        order of `method.Piece`. They are added in the order of the workers.
      shared_probe: float32 [p], the agreed probe.
      shapes: of the v variables.
      scale: factor of the sums.

    Returns:
      v float32 of `shapes`.
    """

  def decode_sums(
    self,
    sums: tf.Tensor,
    shared_probe: tf.Tensor,
    shapes: method.Shapes,
    scale: float = 1.0,
  ) -> list[tf.Tensor]:
    """Decodes what `decode_sum` returns from the sum of the unpacked values.

    `sums` are int8 or int32 sums of codes, or float32 sums, [elements or more].
    The other arguments are those of `decode_sum`.
    """
    raise NotImplementedError

  def num_words(self, num_elements: int) -> int:
    """Returns the words of a payload.

    Args:
      num_elements: elements of the bucket, or of one variable if `scope` is
        VARIABLE.
    """
    if self.packing is None:
      raise NotImplementedError(
        f'{self.name}: expected stages or a num_words method, received '
        'neither. Define one of them in the class.'
      )
    return self.packing.num_words(num_elements)

  def words_of(self, sizes: Sequence[int]) -> int:
    """Returns the words of a payload of variables of these sizes."""
    if self.scope == contract.VARIABLE:
      return sum(map(self.num_words, sizes))
    return self.num_words(sum(sizes))

  def num_probes(self, num_elements: int) -> int:
    """Returns how many probe numbers a variable of this size has; >= 1."""
    if not self.group_size:
      return 1
    return max(1, -(-num_elements // self.group_size))

  @_PROBES
  def encode(
    self,
    gradients: Sequence[tf.Tensor],
    local_probe: tf.Tensor,
    shared_probe: tf.Tensor,
    key: tf.Tensor,
  ) -> tf.Tensor:
    """Encodes this worker's payload of a bucket.

    Args:
      gradients: list of v float32 of any static shapes.
      local_probe: float32 [p], the local probe.
      shared_probe: float32 [p], the agreed probe.
      key: uint32 [2], from `random_bits.fold_in`. Codes with strata need [3],
        from `gradients.GradientCodec.keys`.

    Returns:
      int32 [w].

    Raises:
      ValueError: the gradients, the shared probe or the key have a wrong type
        or shape.
    """
    contract.check_gradients(gradients)
    pieces = [tf.reshape(gradient, [-1]) for gradient in gradients]
    sizes = [piece.shape.num_elements() for piece in pieces]
    probes = sum(map(self.num_probes, sizes))
    if shared_probe is not None and tuple(shared_probe.shape) != (probes,):
      raise ValueError(
        f'{self.name}: expected a shared probe of {probes} numbers, for '
        f'{len(sizes)} gradients, received '
        f'{contract.described(shared_probe)}. Call probe with the same '
        'gradients.'
      )
    if self.strata and key.shape[0] != 3:
      raise ValueError(
        f"{self.name}: expected a key of 3 numbers that ends in the worker's "
        f'stratum, received {key.shape[0]}. Use a key of GradientCodec.keys.'
      )
    return self.encode_pieces(pieces, sizes, local_probe, shared_probe, key)

  @_PROBES
  def requantize(
    self,
    words: tf.Tensor,
    local_probe: tf.Tensor,
    shared_probe: tf.Tensor,
    shapes: method.Shapes,
    key: tf.Tensor,
  ) -> tf.Tensor:
    """Changes a payload from the local scaler to the shared scaler.

    A nonzero code of the local scaler s is kept with probability s / S, where S
    is the shared scaler. An element that was nonzero with probability |g| / s
    is then nonzero with probability |g| / S, which is the distribution of
    encoding with S. Decoding preserves the sign, so the payload is decoded and
    encoded again.

    Args:
      words: int32 [w], encoded with `local_probe` as the shared probe.
      local_probe: float32 [p], the local probe.
      shared_probe: float32 [p], the agreed probe, nowhere below `local_probe`.
      shapes: of the v variables.
      key: as for `encode`, but a different key.

    Returns:
      int32 [w].
    """
    return self._requantized(words, local_probe, shared_probe, shapes, key)

  def _requantized(
    self,
    words: tf.Tensor,
    local_probe: tf.Tensor,
    shared_probe: tf.Tensor,
    shapes: method.Shapes,
    key: tf.Tensor,
  ) -> tf.Tensor:
    """Does what `requantize` promises."""
    decoded = self.decode_sum([words[tf.newaxis]], local_probe, shapes)
    return self.encode(decoded, local_probe, shared_probe, key)

  def bits(
    self, num_elements: int, num_workers: int, num_probes: int = 1
  ) -> float:
    """Returns the bits that one worker sends for a bucket, probe included.

    For payloads of variable length this is the expected number at the density
    of nonzero codes that the packing was built for (Gaussian gradients). No
    code so far depends on `num_workers`.
    """
    count = self.packing.expected_words if self.packing else self.num_words
    return 32 * (count(num_elements) + num_probes)

  def sent_words(self, words: tf.Tensor) -> tf.Tensor:
    """Returns how many words of each payload int32 [..., w] are sent.

    Returns:
      int32 [...]. The remaining words are zero.
    """
    if self.packing is None:
      return wire.all_words(words)
    return self.packing.sent_words(words)

  def twin(self) -> 'Code | None':
    """Returns the variant with native kernels for CPUs, or None."""
    twin = self._with_kernels()
    return twin if twin and twin._is_for_cpus else None

  def _with_kernels(self) -> 'Code | None':
    """Returns the variant with native kernels, or None."""
    # The twin of a base class may compute something else than the subclass.
    kind = vars(type(self)).get('_twin')
    return kind.from_code(self) if kind else None

  def on_kernels(self) -> method.Method:
    """Returns the twin or, without one or without kernels, a compiled code."""
    twin = self.twin()
    if twin is None or native.available():
      return twin or self
    # Compile functions separately even without kernels: if XLA fuses them with
    # the optimizer update, results round differently.
    return compiled_copy(self) if self.compiled else self

  def on_gpus(self) -> method.Method:
    """Returns the twin if it has GPU kernels that can be used here."""
    twin = self._with_kernels()
    if twin is None or twin._uses_gpus is None or not gpu.available():
      return self
    twin._uses_gpus = True
    return twin

  def messages(self, shapes: method.Shapes) -> method.Rounds:
    """Returns the single message: SUM if `summable`, GATHER otherwise."""
    sizes = method.sizes_of(shapes)
    words, packing = self.words_of(sizes), self.packing
    if not self.summable:
      return ((method.gathered(words, packing),),)
    levels = self.quantizer.levels if self.quantizer else None
    return ((method.Message(method.SUM, words, sum(sizes), packing, levels),),)

  def begin(
    self,
    gradients: method.Tensors,
    states: method.Tensors,
    context: method.Context,
  ) -> tuple[method.Tensors, tf.Tensor]:
    """Returns the gradients unchanged and their probe."""
    return gradients, self.probe(method.each(gradients, context))

  def carry(
    self, gradients: method.Tensors, context: method.Context
  ) -> tf.Tensor:
    """Encodes the gradients with the local probe in place of the shared one."""
    probe, key = context.local_probe, context.element_key
    return self.encode_pieces(gradients, context.sizes, probe, probe, key)

  def carry_words(self, shapes: method.Shapes) -> int:
    """Returns the words of a payload."""
    return self.words_of(method.sizes_of(shapes))

  def send(
    self,
    number: int,
    gradients: method.Tensors,
    states: method.Tensors,
    received: method.ReceivedRounds,
    context: method.Context,
  ) -> tuple[list[tf.Tensor], method.Tensors]:
    """Encodes the payload, or requantizes the carried one."""
    probes = context.local_probe, context.shared_probe
    if self.carries:
      key = random_bits.requantizing_key(context.key)
      key = random_bits.advance_key(key, context.start)
      words = self.requantize(gradients[0], *probes, context.shapes, key)
    else:
      key = context.element_key
      words = self.encode_pieces(gradients, context.sizes, *probes, key)
    return [words], states

  def decode(
    self,
    received: method.ReceivedRounds,
    states: method.Tensors,
    context: method.Context,
  ) -> tuple[list[tf.Tensor], method.Tensors]:
    """Decodes the mean from all payloads or from their sum."""
    ((result,),) = received
    arguments = context.shared_probe, context.shapes, context.scale
    if isinstance(result, method.Payloads):
      moves = transport.takes_float32(type(self).decode_sum)
      parts = result.moved_parts if moves else result.parts
      return self.decode_sum(parts, *arguments), states
    # Codes never send SCATTER messages.
    return self.decode_sums(cast(method.Sum, result).total, *arguments), states

  def estimate(
    self, words: Sequence[tf.Tensor], context: method.Context
  ) -> list[tf.Tensor]:
    """Decodes this worker's payload."""
    row = transport.to_float32(words[0])[tf.newaxis]
    if not transport.takes_float32(type(self).decode_sum):
      row = transport.to_int32(row)
    decoded = self.decode_sum([row], context.shared_probe, context.shapes)
    return [tf.reshape(gradient, [-1]) for gradient in decoded]


def compiled_copy(code: Code) -> Code:
  """Returns a copy of the code whose functions XLA compiles separately."""
  made = type(code).from_code(code)
  names = ['probe', 'decode_sum', 'decode_sums', 'encode_pieces']
  # Lossless codes return their input; compiled code would copy it.
  wrapper.compile_separately(
    made, code, names[: 3 if code.traits.lossless else 4]
  )
  return made


def as_method(code: method.Method) -> method.Method:
  """Returns a method unchanged.

  Raises:
    ValueError: the argument is not a `Method`.
  """
  if isinstance(code, method.Method):
    return code
  raise ValueError(
    f'codec: expected a Codec or a Method, received {code!r}. Derive its class '
    'from terngrad.codec.method.Method, or create one from its name: '
    "parse_codec('ternary')."
  )
