"""What a gradient method is: what workers send each other, and remember.

A `Method` is pure functions and declarations about a bucket, a list of
variables that are coded together. A step with it:

1. Each worker `begin`s: from its gradients and what it remembers come the
   gradients to code and a probe, a few numbers. The workers agree on the
   largest of each; the numbers travel with losses and statistics in one row.
2. Round after round each worker sends messages, and receives those of all,
   combined as each message declares.
3. Every device decodes what was received to the mean gradients.
4. Where a worker remembers what depends on the mean, it `finish`es.

Methods know nothing of devices, flags, optimizers or communication. One that
needs no rounds and remembers nothing is a `coded.Code`.
"""

from collections.abc import Callable
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from terngrad.codec.stages import contract
from terngrad.codec.stages import deprecated
from terngrad.codec.stages import float_words
from terngrad.codec.stages import random_bits
from terngrad.codec.stages import statistics
from terngrad.codec.stages import wire

# How messages are combined.
SUM, GATHER, SCATTER = 'sum', 'gather', 'scatter'
# Who remembers a state.
WORKER, SHARED = 'worker', 'shared'
# What becomes of workers' states where their number changes.
MEAN, RANGES = 'mean', 'ranges'

Shapes = contract.Shapes
Tensors = Sequence[tf.Tensor]
AnyPacking = wire.Packing | wire.VariablePacking | wire.CompositePacking


class Message(NamedTuple):
  """One of the tensors that a worker sends in a round, as int32 words.

  Attributes:
    combine: SUM: receivers need the sum over the workers alone. Integers may be
      added anywhere and in any way; floats are added as float32 in the order of
      the workers. GATHER: receivers need the words of every worker. SCATTER:
      words are as many equal parts as there are workers, and each worker needs
      its own part of every worker's.
    num_words: of a worker's message, sent or not.
    num_elements: how many numbers are summed; 0 for others than SUM.
    packing: for SUM, `wire.Packing` or `wire.VariablePacking`: how words hold
      the numbers. For others, None, or what counts the words that are used.
    levels: for SUM of integers the largest magnitude; None for floats.
  """

  combine: str
  num_words: int
  num_elements: int = 0
  packing: AnyPacking | None = None
  levels: int | None = None

  def sent_words(self, words: tf.Tensor) -> tf.Tensor:
    """int32 [...]: how many words of int32 [..., num_words] are sent."""
    if self.packing is None:
      return wire.all_words(words)
    return self.packing.sent_words(words)

  @property
  def expected_words(self) -> float:
    """Words that are sent on average; see `coded.Code.bits`."""
    if self.packing is None or not self.num_elements:
      return self.num_words
    return self.packing.expected_words(self.num_elements)


def float_sum(num_elements: int) -> Message:
  """The `Message` of so many float32, which are summed."""
  packing = float_words.float32_words()
  return Message(SUM, num_elements, num_elements, packing)


def code_sum(
  packing: wire.Packing | wire.VariablePacking, num_elements: int, levels: int
) -> Message:
  """The `Message` of integers, which are summed.

  Args:
    packing: `wire.Packing` or `wire.VariablePacking` of them.
    num_elements: how many.
    levels: their largest magnitude.
  """
  words = packing.num_words(num_elements)
  return Message(SUM, words, num_elements, packing, levels)


def gathered(num_words: int, packing: AnyPacking | None = None) -> Message:
  """The `Message` of so many words that all workers get from all."""
  return Message(GATHER, num_words, packing=packing)


class Piece(NamedTuple):
  """Words of all workers' messages.

  Attributes:
    first: how many words of a message stand before them.
    parts: list of m int32 [n / m, words]: worker r's words are row r // m of
      part r % m, as they come from m devices; the first parts may have one row
      more.
  """

  first: int
  parts: list[tf.Tensor]


def rows_in_order(parts: Sequence[tf.Tensor]) -> tf.Tensor:
  """int32 [n, w], row r of worker r, from parts; see `Piece`."""
  if len(parts) == 1:
    return parts[0]
  total = sum(part.shape[0] for part in parts)
  orders = [list(range(i, total, len(parts))) for i in range(len(parts))]
  return tf.dynamic_stitch(orders, parts)


class Payloads(NamedTuple):
  """A message of every worker.

  Attributes:
    travelled: list of `Piece`, one after the other, of what travelled.
    start: first word of the message in that.
    stop: word after its last.
  """

  travelled: list[Piece]
  start: int
  stop: int

  @property
  def pieces(self) -> list[Piece]:
    """The message's own words, a list of one `Piece` or more."""
    found = []
    for piece in self.travelled:
      width = piece.parts[0].shape[1]
      begin = max(piece.first, self.start)
      end = min(piece.first + width, self.stop)
      if begin < end:
        parts = piece.parts
        if end - begin < width:
          columns = slice(begin - piece.first, end - piece.first)
          parts = [part[:, columns] for part in parts]
        found.append(Piece(begin - self.start, parts))
    if not found:
      found.append(Piece(0, [p[:, :0] for p in self.travelled[0].parts]))
    return found

  @property
  def parts(self) -> list[tf.Tensor]:
    """The `Piece.parts` of the whole message."""
    pieces = self.pieces
    if len(pieces) == 1:
      return pieces[0].parts
    columns = zip(*(piece.parts for piece in pieces), strict=True)
    return [tf.concat(list(column), axis=1) for column in columns]

  def sum(self, message: Message) -> tf.Tensor:
    """What `Sum.sum` would be, for a message that may be summed."""
    return wire.sum_planes(message.packing, self.parts, message.num_elements)


def payloads(
  messages: Sequence[Message], travelled: list[Piece]
) -> list['Received']:
  """The messages in what travelled as one tensor.

  Args:
    messages: list of `Message`, in the order of their words.
    travelled: list of `Piece`, one after the other, of all their words.

  Returns:
    List of `Payloads`, or `Scattered`, one a message.
  """
  found: list[Received] = []
  stop = 0
  for message in messages:
    start, stop = stop, stop + message.num_words
    words = Payloads(travelled, start, stop)
    scattered = message.combine == SCATTER
    found.append(Scattered.of_all(words) if scattered else words)
  return found


class Scattered(NamedTuple):
  """The parts of all workers' messages that are for the workers here.

  Attributes:
    rows: int32 [N, k, words of a part], row r of worker r.
    first: the worker that the first of the k parts is for.
  """

  rows: tf.Tensor
  first: int = 0

  @classmethod
  def of_all(cls, words: Payloads) -> 'Scattered':
    """All parts, of `Payloads` of whole messages."""
    rows = rows_in_order(words.parts)
    count = rows.shape[0]
    return cls(tf.reshape(rows, [count, count, rows.shape[1] // count]))

  def of(self, worker: tf.Tensor) -> Payloads:
    """The `Payloads` that a worker here received; its number is int32 []."""
    rows = tf.gather(self.rows, worker - self.first, axis=1)
    return Payloads([Piece(0, [rows])], 0, rows.shape[1])


class Sum(NamedTuple):
  """The sum of a message over all workers.

  Attributes:
    pieces: list of int8, int32 or float32 [elements], one after the other, in
      all num_elements or more.
  """

  pieces: list[tf.Tensor]

  @property
  def total(self) -> tf.Tensor:
    """All pieces as one tensor."""
    return flat(self.pieces)

  def sum(self, message: Message) -> tf.Tensor:
    """The sum as float32, or int32; [num_elements or more]."""
    del message
    total = self.total
    return total if total.dtype.is_floating else tf.cast(total, tf.int32)


Received = Payloads | Sum | Scattered
# For each round one a message.
Arrived = Sequence[Sequence[Received]]
Rounds = Sequence[Sequence[Message]]


def received_by(
  worker: tf.Tensor, received: Arrived
) -> list[list[Payloads | Sum]]:
  """What a worker has of all rounds: of what was scattered its own part.

  Args:
    worker: int32 [].
    received: for each round a list of `Payloads`, `Sum` or `Scattered`.

  Returns:
    The same, without `Scattered`.
  """
  return [
    [one.of(worker) if isinstance(one, Scattered) else one for one in arrived]
    for arrived in received
  ]


class State(NamedTuple):
  """An array that is remembered from step to step, of one variable.

  Attributes:
    name: the same for all variables of a model; checkpoints know the array by
      it and by the variable.
    owner: WORKER: each worker has its own. SHARED: every device computes the
      same.
    variable: index of the variable in the bucket.
    shape: tuple of int.
    initial: takes the shape, returns float32: the first values. None: zeros.
    dealt: for WORKER, what `dealing` does where their number changes. MEAN: all
      get the mean of what there was, so that what is owed to the mean of the
      gradients stays owed. RANGES: those of all, one after the other, are one
      array with zeros past its end, which is cut anew.
  """

  name: str
  owner: str
  variable: int
  shape: tuple[int, ...]
  initial: Callable[[tuple[int, ...]], tf.Tensor] | None = None
  dealt: str = MEAN

  def first_value(self) -> tf.Tensor:
    """float32 of the shape."""
    return self.initial(self.shape) if self.initial else tf.zeros(self.shape)


class Context(NamedTuple):
  """What the functions of a method may know.

  Attributes:
    shapes: tuple of the shapes of the bucket's v variables.
    num_workers: N.
    stream: number of the bucket, by which its random bits differ from others'.
    start: elements of the bucket before these, where it was cut into parts.
    seed: int64 [], of the run.
    step: int64 [], steps taken before this one.
    worker: int32 [], its number; None in `decode`.
    key: uint32 [3], from `random_bits.of_buckets`; None in `decode`.
    own: float32 [p], the worker's probe; None in `begin` and `decode`.
    shared: float32 [p], the agreed probe; None in `begin` and `carry`.
  """

  shapes: tuple[tuple[int, ...], ...]
  num_workers: int
  stream: int
  start: int
  seed: tf.Tensor
  step: tf.Tensor
  worker: tf.Tensor | None = None
  key: tf.Tensor | None = None
  own: tf.Tensor | None = None
  shared: tf.Tensor | None = None

  @property
  def sizes(self) -> list[int]:
    """Elements of each variable, list of v int."""
    return sizes_of(self.shapes)

  @property
  def common_key(self) -> tf.Tensor:
    """uint32 [2], the same for all workers in a step."""
    return random_bits.common_key(self.seed, self.step, self.stream)


class Method(deprecated.OfFunctions):
  """How the workers come to the mean of their gradients.

  A method subclasses this, declares what is not as here, and defines
  `messages`, `send`, `decode` and what else it has. Methods are compared by
  identity: the variables of one object are coded together.

  Gradients come as a list of float32, flat: one of each variable, or one of all
  together; see `each` and `flat`. States come, and are returned, as the list
  that `states` declares.

  Attributes:
    name: for labels, and for what a checkpoint was trained with.
    traits: see `contract.Traits`.
    scope: ELEMENT, VARIABLE or BUCKET: what an element's code depends on.
      Buckets of the last are not cut into parts.
    num_rounds: how often workers send.
    estimates: whether there is `estimate`; otherwise only the mean can say what
      a worker sent.
    finishes: whether there is `finish`: a worker keeps what depends on the
      mean.
    carries: whether there are `carry` and `carry_words`; otherwise workers keep
      gradients until the probe is agreed on.
    telling: the round whose words are of the worker's gradients alone.
    agrees: whether a function looks at the agreed probe. False: probes are
      norms of variables, which show what is not finite and nothing else.
    draws_in_decode: whether `decode` draws from `Context.common_key`, so that
      the step must be that in which the words were made.
    strata: workers whose draws are spread evenly, see `contract.Quantizer`.
    max_workers: the most whose messages it can add; None for any number.
    digits: (radix, places) where a kernel decodes words whose digits, summed
      over the workers and times the agreed number of their variable, are N
      times the mean; None where none does. Fused updates look at it.
    unit: SCALER where a kernel makes gradients of sums of codes times the
      agreed number of their variable, ONE where of sums of floats as they are;
      None where none does.
    compiled: True where the functions want to be compiled by XLA; False where
      they must not be or gain nothing.
  """

  name: str
  traits: contract.Traits
  scope: str = contract.ELEMENT
  num_rounds: int = 1
  estimates: bool = False
  finishes: bool = False
  carries: bool = False
  telling: int = -1
  agrees: bool = True
  draws_in_decode: bool = False
  strata: int = 0
  max_workers: int | None = None
  digits: tuple[int, int] | None = None
  unit: str | None = None
  compiled: bool = True

  def messages(self, shapes: Shapes) -> Rounds:
    """For each round its messages, for variables of such shapes."""
    raise NotImplementedError

  def states(self, shapes: Shapes) -> tuple[State, ...]:
    """What is kept from step to step: nothing."""
    del shapes
    return ()

  def num_probes(self, num_elements: int) -> int:
    """How many numbers of the probe are of a variable of so many elements."""
    del num_elements
    return 1

  def begin(
    self, gradients: Tensors, states: Tensors, context: Context
  ) -> tuple[Tensors, tf.Tensor]:
    """What is coded, and what is to be agreed on: here norms, on nothing.

    Args:
      gradients: of the worker.
      states: what it sees.
      context: without probes.

    Returns:
      (The gradients that are coded; float32 [p], the probe. An entry of it is
      not finite where an element that it is of is not.)
    """
    del states
    return gradients, statistics.norms(each(gradients, context))

  def carry(self, gradients: Tensors, context: Context) -> tf.Tensor:
    """int32 words that a worker keeps in place of `begin`'s gradients.

    Until the probe is agreed on: what is kept is what a further virtual node
    costs.
    """
    raise NotImplementedError

  def carry_words(self, shapes: Shapes) -> int:
    """The number of `carry`'s words."""
    raise NotImplementedError

  def send(
    self,
    number: int,
    gradients: Tensors,
    states: Tensors,
    received: Arrived,
    context: Context,
  ) -> tuple[list[tf.Tensor], Tensors]:
    """A worker's messages of a round.

    Args:
      number: of the round, from 0.
      gradients: those of `begin`, or what `carry` made of them.
      states: what the worker sees; only WORKER states may change.
      received: for each round before a list of `Payloads`, `Sum` or, of what
        was scattered, its own part.
      context: with all that there is.

    Returns:
      (list of int32 words, one a message; states).
    """
    raise NotImplementedError

  def decode(
    self,
    received: Arrived,
    states: Tensors,
    context: Context,
  ) -> tuple[list[tf.Tensor], Tensors]:
    """The mean gradients.

    Args:
      received: see `send`, of all rounds; what was scattered may not be read.
      states: only SHARED ones may be read or change.
      context: without worker, key and own probe.

    Returns:
      (list of v float32 of the shapes; states).
    """
    raise NotImplementedError

  def estimate(
    self, words: Sequence[tf.Tensor], context: Context
  ) -> list[tf.Tensor]:
    """What the words of round `telling` say of the worker's own gradients.

    Returns:
      List of float32, as gradients come.
    """
    raise NotImplementedError

  def finish(
    self,
    gradients: Tensors,
    states: Tensors,
    means: Sequence[tf.Tensor],
    context: Context,
  ) -> Tensors:
    """The states of a worker, when the mean gradients are known."""
    raise NotImplementedError

  def on_kernels(self) -> 'Method':
    """The method as CPUs compute it best, to the same bits."""
    return self

  def on_gpus(self) -> 'Method':
    """The method as GPUs compute it best."""
    return self

  def in_float(self, plain: 'Method') -> 'Method':
    """The method of float32 steps in between, which has the same states.

    Args:
      plain: the method of float32 gradients.
    """
    return plain


class Wrapper(Method):
  """A method around another one, which it does as that does it.

  Attributes:
    method: the other one.
  """

  def __init__(self, method: Method) -> None:
    """Declares what the other one does."""
    self.method = method
    for name in Method.__annotations__:
      setattr(self, name, getattr(method, name))

  def around(self, method: Method) -> Method:
    """The same around another method."""
    raise NotImplementedError

  def messages(self, shapes: Shapes) -> Rounds:
    """See `Method`."""
    return self.method.messages(shapes)

  def states(self, shapes: Shapes) -> tuple[State, ...]:
    """See `Method`."""
    return self.method.states(shapes)

  def num_probes(self, num_elements: int) -> int:
    """See `Method`."""
    return self.method.num_probes(num_elements)

  def begin(
    self, gradients: Tensors, states: Tensors, context: Context
  ) -> tuple[Tensors, tf.Tensor]:
    """See `Method`."""
    return self.method.begin(gradients, states, context)

  def send(
    self,
    number: int,
    gradients: Tensors,
    states: Tensors,
    received: Arrived,
    context: Context,
  ) -> tuple[list[tf.Tensor], Tensors]:
    """See `Method`."""
    return self.method.send(number, gradients, states, received, context)

  def decode(
    self, received: Arrived, states: Tensors, context: Context
  ) -> tuple[list[tf.Tensor], Tensors]:
    """See `Method`."""
    return self.method.decode(received, states, context)

  def estimate(
    self, words: Sequence[tf.Tensor], context: Context
  ) -> list[tf.Tensor]:
    """See `Method`."""
    return self.method.estimate(words, context)

  def carry_words(self, shapes: Shapes) -> int:
    """See `Method`."""
    return self.method.carry_words(shapes)

  def on_kernels(self) -> Method:
    """See `Method`."""
    return self._again(self.method.on_kernels())

  def on_gpus(self) -> Method:
    """See `Method`."""
    return self._again(self.method.on_gpus())

  def in_float(self, plain: Method) -> Method:
    """See `Method`."""
    return self.around(self.method.in_float(plain))

  def _again(self, method: Method) -> Method:
    return self if method is self.method else self.around(method)


class SelfCompiled(Wrapper):
  """A method whose functions XLA compiles one by one."""

  def __init__(self, method: Method) -> None:
    """Wraps a method that wants to be compiled."""
    super().__init__(method)
    names = ['begin', 'carry', 'decode', 'estimate', 'finish', 'send']
    # Plain floats are moved as they are; compiled code would copy them.
    compile_apart(self, method, names[:-1] if method.traits.lossless else names)

  def around(self, method: Method) -> Method:
    """Another method is compiled anew, where it wants to be."""
    return method


def self_compiled(method: Method) -> Method:
  """The method with functions that XLA compiles one by one, if any."""
  return SelfCompiled(method) if method.compiled else method


def compile_apart(target: Method, source: Method, names: Sequence[str]) -> None:
  """Gives a method another one's functions, which XLA compiles one by one."""
  target.compiled = False
  for name in names:
    compiled = tf.function(getattr(source, name), jit_compile=True)
    setattr(target, name, compiled)


def begin_with_norms(
  gradients: Tensors, states: Tensors, context: Context
) -> tuple[Tensors, tf.Tensor]:
  """`Method.begin`, for methods of functions; goes in 0.4."""
  return Method.begin(Method(), gradients, states, context)


def sizes_of(shapes: Shapes) -> list[int]:
  """Elements of each shape, list of int."""
  return [tf.TensorShape(shape).num_elements() for shape in shapes]


def flat(gradients: Tensors) -> tf.Tensor:
  """Gradients as one float32 [elements]; a single tensor is not copied."""
  return gradients[0] if len(gradients) == 1 else tf.concat(gradients, axis=0)


def each(gradients: Tensors, context: Context) -> Tensors:
  """Gradients as a list of v float32, flat; nothing is copied if they are."""
  sizes = context.sizes
  if len(gradients) == len(sizes):
    return gradients
  return tf.split(gradients[0], sizes)


def shaped(gradients: Tensors, context: Context) -> list[tf.Tensor]:
  """Gradients as a list of v float32 of the shapes."""
  pairs = zip(each(gradients, context), context.shapes, strict=True)
  return [tf.reshape(gradient, shape) for gradient, shape in pairs]
