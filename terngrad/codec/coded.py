"""Methods of one round: each worker sends its gradients as words of a code."""

import abc
from collections.abc import Sequence
from typing import TYPE_CHECKING
from typing import cast

import tensorflow as tf

from terngrad import native
from terngrad.codec import method
from terngrad.codec import wrapper
from terngrad.codec.stages import contract
from terngrad.codec.stages import random_bits
from terngrad.codec.stages import statistics
from terngrad.codec.stages import wire

if TYPE_CHECKING:
  from typing_extensions import Self


class Code(method.Method):
  """A method of one message that keeps no state.

  A payload is one flat int32 tensor of words and nothing else: TensorFlow's
  collectives carry no narrower integers, and a code that must send floats
  beside its digits sends their bits as words.

  A subclass defines `name`, `traits`, `encode_pieces`, `decode_sum` and, unless
  it has stages, `num_words`; and what else is not as here. `chain.chain` makes
  codes of stages.

  Attributes:
    stages: what it is a chain of; the last is the packing.
    group_size: elements of a variable that share a scaler; 0 for all of it.
    summable: whether sums of what words hold say all: then there is
      `decode_sums`.
    carries: True where workers encode at once, by their own probe, and
      `requantize` when the shared one is known.
  """

  estimates = True
  stages: Sequence[contract.Stage] = ()
  group_size: int = 0
  summable: bool = False
  _twin: 'type[Code] | None'

  def __init_subclass__(cls, twin_of: 'type[Code] | None' = None) -> None:
    """Takes the class whose codes this one computes with kernels, if any."""
    super().__init_subclass__()
    if twin_of:
      twin_of._twin = cls

  @classmethod
  def of(cls, code: 'Code') -> 'Self':
    """A code of this class with all that a code of another one holds."""
    made = cls.__new__(cls)
    vars(made).update(vars(code))
    return made

  @property
  def packing(self) -> method.AnyPacking | None:
    """The last stage; None without stages: all `num_words` are sent."""
    return cast(method.AnyPacking, self.stages[-1]) if self.stages else None

  @property
  def quantizer(self) -> contract.Quantizer | None:
    """The `contract.Quantizer` among the stages, or None."""
    found = (s for s in self.stages if isinstance(s, contract.Quantizer))
    return next(found, None)

  def probe(self, gradients: Sequence[tf.Tensor]) -> tf.Tensor:
    """What the workers must agree on before they encode, by the largest.

    Args:
      gradients: v float32 of any static shapes.

    Returns:
      float32 [p], `num_probes` of a variable. An entry is not finite where an
      element that it is of is not.
    """
    return statistics.norms(gradients)

  @abc.abstractmethod
  def encode_pieces(
    self,
    pieces: Sequence[tf.Tensor],
    sizes: Sequence[int],
    own: tf.Tensor,
    shared: tf.Tensor,
    key: tf.Tensor,
  ) -> tf.Tensor:
    """int32 [w]: `encode` for flat gradients.

    Args:
      pieces: float32, the v gradients, or one tensor, all of them.
      sizes: of the v gradients.
      own: as the others see `encode`.
      shared: see there.
      key: see there.
    """

  @abc.abstractmethod
  def decode_sum(
    self,
    parts: Sequence[tf.Tensor],
    shared: tf.Tensor,
    shapes: method.Shapes,
    scale: float = 1.0,
  ) -> list[tf.Tensor]:
    """The sums of what payloads stand for, times scale; v float32.

    Args:
      parts: the payloads of n workers, m int32 [n / m, w], see `method.Piece`.
        They are added in the order of the workers.
      shared: float32 [p], the agreed probe.
      shapes: of the v variables.
      scale: multiplies the sums.
    """

  def decode_sums(
    self,
    sums: tf.Tensor,
    shared: tf.Tensor,
    shapes: method.Shapes,
    scale: float = 1.0,
  ) -> list[tf.Tensor]:
    """What `decode_sum` returns, from sums of what the words hold.

    Args:
      sums: of the workers' codes, int8 or int32, or of their floats, float32,
        [elements or more].
      shared: as the others see `decode_sum`.
      shapes: see there.
      scale: see there.
    """
    raise NotImplementedError

  def num_words(self, num_elements: int) -> int:
    """Words of a payload of so many elements, in a bucket.

    For codes of scope VARIABLE, in a variable; see `words_of`.
    """
    if self.packing is None:
      raise NotImplementedError(f'{self.name}: define num_words, or stages.')
    return self.packing.num_words(num_elements)

  def words_of(self, sizes: Sequence[int]) -> int:
    """Words of a payload of variables of so many elements, list of v int."""
    if self.scope == contract.VARIABLE:
      return sum(map(self.num_words, sizes))
    return self.num_words(sum(sizes))

  def num_probes(self, num_elements: int) -> int:
    """How many of the probe's numbers are of a variable; at least 1."""
    if not self.group_size:
      return 1
    return max(1, -(-num_elements // self.group_size))

  def encode(
    self,
    gradients: Sequence[tf.Tensor],
    own: tf.Tensor,
    shared: tf.Tensor,
    key: tf.Tensor,
  ) -> tf.Tensor:
    """This worker's payload for a bucket.

    Args:
      gradients: list of v float32 of any static shapes.
      own: float32 [p], this worker's probe.
      shared: float32 [p], the agreed probe.
      key: uint32 [2], from `random_bits.fold_in`; or, for strata, [3], see
        `gradients.GradientCodec.keys`.

    Returns:
      int32 [w].

    Raises:
      ValueError: these are no gradients, no probes of them, or no key.
    """
    contract.check_gradients(gradients)
    pieces = [tf.reshape(gradient, [-1]) for gradient in gradients]
    sizes = [piece.shape.num_elements() for piece in pieces]
    probes = sum(map(self.num_probes, sizes))
    if shared is not None and tuple(shared.shape) != (probes,):
      raise ValueError(
        f'{self.name}: expected a shared probe of {probes} numbers, for '
        f'{len(sizes)} gradients, received {contract.described(shared)}. Call '
        'probe with the same gradients.'
      )
    if self.strata and key.shape[0] != 3:
      raise ValueError(
        f"{self.name}: expected a key of 3 numbers, the last the worker's "
        f'stratum, received {key.shape[0]}. Take it from GradientCodec.keys.'
      )
    return self.encode_pieces(pieces, sizes, own, shared, key)

  def requantize(
    self,
    words: tf.Tensor,
    own: tf.Tensor,
    shared: tf.Tensor,
    shapes: method.Shapes,
    key: tf.Tensor,
  ) -> tf.Tensor:
    """A payload of the shared scaler from one of the worker's own.

    A code of the own scaler s is kept with probability s / S, S the shared one.
    What was not 0 with probability |g| / s then is not with |g| / S: the law of
    encoding by S. An element and the decoded one have the same sign, so that
    this is encoding again what was decoded.

    Args:
      words: int32 [w], encoded with `own` as the shared probe.
      own: float32 [p], this worker's probe.
      shared: float32 [p], the agreed probe, nowhere below `own`.
      shapes: of the v variables.
      key: as for `encode`, another one.
    """
    decoded = self.decode_sum([words[tf.newaxis]], own, shapes)
    return self.encode(decoded, own, shared, key)

  def bits(
    self, num_elements: int, num_workers: int, num_probes: int = 1
  ) -> float:
    """Bits that one worker sends for a bucket, its probe included.

    Where the length varies this is the mean for the density of codes that the
    packing was made for: of Gaussian gradients. Codes so far cost the same for
    any number of workers.
    """
    count = self.packing.expected_words if self.packing else self.num_words
    return 32 * (count(num_elements) + num_probes)

  def sent_words(self, words: tf.Tensor) -> tf.Tensor:
    """int32 [...]: how many of int32 [..., w] are sent; the rest are zero."""
    if self.packing is None:
      return wire.all_words(words)
    return self.packing.sent_words(words)

  def twin(self) -> 'Code | None':
    """The code with kernels of its own, for CPUs; None where it has none."""
    # Not that of a base: a subclass may compute otherwise than kernels do.
    kind = vars(type(self)).get('_twin')
    return kind.of(self) if kind else None

  def on_kernels(self) -> method.Method:
    """See `method.Method`."""
    twin = self.twin()
    if twin is None or native.available():
      return twin or self
    # Compiled apart without them too: joined to the update it rounds otherwise.
    return apart(self) if self.compiled else self

  def messages(self, shapes: method.Shapes) -> method.Rounds:
    """See `method.Method`."""
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
    """See `method.Method`."""
    return gradients, self.probe(method.each(gradients, context))

  def carry(
    self, gradients: method.Tensors, context: method.Context
  ) -> tf.Tensor:
    """A payload as if the worker's own probe were the agreed one."""
    own, sizes = context.own, context.sizes
    return self.encode_pieces(gradients, sizes, own, own, context.element_key)

  def carry_words(self, shapes: method.Shapes) -> int:
    """See `method.Method`."""
    return self.words_of(method.sizes_of(shapes))

  def send(
    self,
    number: int,
    gradients: method.Tensors,
    states: method.Tensors,
    received: method.Arrived,
    context: method.Context,
  ) -> tuple[list[tf.Tensor], method.Tensors]:
    """See `method.Method`."""
    own, shared, key = context.own, context.shared, context.element_key
    if self.carries:
      key = random_bits.for_requantizing(context.key)
      key = random_bits.from_element(key, context.start)
      words = self.requantize(gradients[0], own, shared, context.shapes, key)
    else:
      words = self.encode_pieces(gradients, context.sizes, own, shared, key)
    return [words], states

  def decode(
    self,
    received: method.Arrived,
    states: method.Tensors,
    context: method.Context,
  ) -> tuple[list[tf.Tensor], method.Tensors]:
    """See `method.Method`."""
    ((arrived,),) = received
    where = context.shared, context.shapes, context.scale
    if isinstance(arrived, method.Payloads):
      return self.decode_sum(arrived.parts, *where), states
    # Codes scatter nothing.
    return self.decode_sums(cast(method.Sum, arrived).total, *where), states

  def estimate(
    self, words: Sequence[tf.Tensor], context: method.Context
  ) -> list[tf.Tensor]:
    """See `method.Method`."""
    payload = [words[0][tf.newaxis]]
    decoded = self.decode_sum(payload, context.shared, context.shapes)
    return [tf.reshape(gradient, [-1]) for gradient in decoded]


def apart(code: Code) -> Code:
  """The code with functions that XLA compiles one by one."""
  made = type(code).of(code)
  names = ['probe', 'decode_sum', 'decode_sums', 'encode_pieces']
  # Plain floats are moved as they are; compiled code would copy them.
  wrapper.compile_apart(made, code, names[: 3 if code.traits.lossless else 4])
  return made


def as_method(code: method.Method) -> method.Method:
  """A method, which is returned as it is.

  Raises:
    ValueError: it is none.
  """
  if isinstance(code, method.Method):
    return code
  raise ValueError(
    f'code: expected a Codec or a Method, received {code!r}. Make one of a '
    "text such as 'ternary' by parse_codec."
  )
