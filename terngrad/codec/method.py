"""What a gradient method is: what workers send each other, and remember.

A method is pure functions and declarations about a bucket, a list of variables
that are coded together. A step with it:

1. Each worker `begin`s: from its gradients and what it remembers come the
   gradients to code and a probe, a few numbers. The workers agree on the
   largest of each; the numbers travel with losses and statistics in one row.
2. Round after round each worker sends messages, and receives those of all,
   combined as each message declares.
3. Every device decodes what was received to the mean gradients.
4. Where a worker remembers what depends on the mean, it `finish`es.

Methods know nothing of devices, flags, optimizers or communication. A code that
needs no rounds and remembers nothing is a `contract.Codec`; `coded.coded` makes
a method of it.
"""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from terngrad.codec.stages import contract
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
  packing: object = None
  levels: int | None = None

  def sent_words(self, words):
    """int32 [...]: how many words of int32 [..., num_words] are sent."""
    if self.packing is None:
      return wire.all_words(words)
    return self.packing.sent_words(words)

  @property
  def expected_words(self):
    """Words that are sent on average; see `contract.Codec.bits`."""
    if self.packing is None or not self.num_elements:
      return self.num_words
    return self.packing.expected_words(self.num_elements)


def float_sum(num_elements):
  """The `Message` of so many float32, which are summed."""
  packing = float_words.float32_words()
  return Message(SUM, num_elements, num_elements, packing)


def code_sum(packing, num_elements, levels):
  """The `Message` of integers, which are summed.

  Args:
    packing: `wire.Packing` or `wire.VariablePacking` of them.
    num_elements: how many.
    levels: their largest magnitude.
  """
  words = packing.num_words(num_elements)
  return Message(SUM, words, num_elements, packing, levels)


def gathered(num_words, packing=None):
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
  parts: list


def rows_in_order(parts):
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

  travelled: list
  start: int
  stop: int

  @property
  def pieces(self):
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
  def parts(self):
    """The `Piece.parts` of the whole message."""
    pieces = self.pieces
    if len(pieces) == 1:
      return pieces[0].parts
    columns = zip(*(piece.parts for piece in pieces), strict=True)
    return [tf.concat(list(column), axis=1) for column in columns]

  def sum(self, message):
    """What `Sum.sum` would be, for a message that may be summed."""
    return wire.sum_planes(message.packing, self.parts, message.num_elements)


def payloads(messages, travelled):
  """The messages in what travelled as one tensor.

  Args:
    messages: list of `Message`, in the order of their words.
    travelled: list of `Piece`, one after the other, of all their words.

  Returns:
    List of `Payloads`, or `Scattered`, one a message.
  """
  found, stop = [], 0
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
  def of_all(cls, words):
    """All parts, of `Payloads` of whole messages."""
    rows = rows_in_order(words.parts)
    count = rows.shape[0]
    return cls(tf.reshape(rows, [count, count, rows.shape[1] // count]))

  def of(self, worker):
    """The `Payloads` that a worker here received; its number is int32 []."""
    rows = tf.gather(self.rows, worker - self.first, axis=1)
    return Payloads([Piece(0, [rows])], 0, rows.shape[1])


def received_by(worker, received):
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


class Sum(NamedTuple):
  """The sum of a message over all workers.

  Attributes:
    pieces: list of int8, int32 or float32 [elements], one after the other, in
      all num_elements or more.
  """

  pieces: list

  @property
  def total(self):
    """All pieces as one tensor."""
    return flat(self.pieces)

  def sum(self, message):
    """The sum as float32, or int32; [num_elements or more]."""
    del message
    total = self.total
    return total if total.dtype.is_floating else tf.cast(total, tf.int32)


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
  shape: tuple
  initial: Callable | None = None
  dealt: str = MEAN

  def first_value(self):
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

  shapes: tuple
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
  def sizes(self):
    """Elements of each variable, list of v int."""
    return sizes_of(self.shapes)

  @property
  def common_key(self):
    """uint32 [2], the same for all workers in a step."""
    return random_bits.common_key(self.seed, self.step, self.stream)


class Method(NamedTuple):
  """How the workers come to the mean of their gradients.

  Gradients come as a list of float32, flat: one of each variable, or one of all
  together; see `each` and `flat`. States come, and are returned, as the list
  that `states` declares.

  Attributes:
    name: for labels, and for what a checkpoint was trained with.
    traits: see `contract.Traits`.
    begin: takes (gradients, states, context), returns (the gradients that are
      coded; float32 [p], the probe). An entry of the probe is not finite where
      an element that it is of is not.
    messages: takes the shapes, returns for each round a tuple of `Message`.
    send: for each round a function of (gradients, or what `carry` made of them;
      states; received; context), which returns (list of int32 words, one a
      message; states). `received` has for each round before a list of
      `Payloads` or `Sum`. Only WORKER states may change.
    decode: takes (received, states, context), returns (list of v float32 of
      the shapes, the mean gradients; states). Only SHARED states may be read
      or change, and nothing that was scattered be read.
    estimate: takes (the words of round `telling`, context), returns a list of
      float32 as gradients come: what the worker's messages say of its own
      gradients. None: only the mean can say it.
    finish: takes (gradients, states, the mean gradients, context), returns
      states; None where nothing that a worker remembers depends on the mean.
    states: takes the shapes, returns a tuple of `State`.
    scope: see `contract.Codec`; buckets of scope BUCKET are not cut into parts.
    carry: takes (gradients, context), returns the int32 words that a worker
      keeps in place of gradients until the probe is agreed on; None where it
      keeps gradients. What is kept is what a further virtual node costs.
    carry_words: takes the shapes, returns the number of those words.
    num_probes: takes the elements of a variable, returns how many numbers of
      the probe are of it.
    draws_in_decode: whether `decode` draws from `Context.common_key`, so that
      the step must be that in which the words were made.
    strata: workers whose draws are spread evenly, see `contract.Quantizer`.
    max_workers: the most whose messages it can add; None for any number.
    telling: the round whose words are of the worker's gradients alone.
    agrees: whether a function looks at the agreed probe. False: probes are
      norms of variables, which tell what is not finite and nothing else.
    digits: for one round of one SUM, see `contract.Codec`: their sum over the
      number of workers is the mean. None for other methods. Fused updates look
      at it.
    unit: see `contract.Codec`, likewise.
    compiled: True where the functions want to be compiled by XLA; False where
      they must not be or gain nothing.
    on_kernels: returns the same method with native kernels, for CPUs; None
      where it has none.
    on_gpus: the same for GPUs.
    in_float: returns the method of steps with float32 gradients, which
      remembers the same; None for plain float32.
  """

  name: str
  traits: contract.Traits
  begin: Callable
  messages: Callable
  send: tuple
  decode: Callable
  estimate: Callable | None = None
  finish: Callable | None = None
  states: Callable = lambda shapes: ()
  scope: str = contract.ELEMENT
  carry: Callable | None = None
  carry_words: Callable | None = None
  num_probes: Callable = lambda num_elements: 1
  draws_in_decode: bool = False
  strata: int = 0
  max_workers: int | None = None
  telling: int = -1
  agrees: bool = True
  digits: tuple | None = None
  unit: str | None = None
  compiled: bool = True
  on_kernels: Callable | None = None
  on_gpus: Callable | None = None
  in_float: Callable | None = None


def self_compiled(method):
  """The method with functions that XLA compiles one by one."""
  if not method.compiled:
    return method

  def compiled(function):
    return function and tf.function(function, jit_compile=True)

  return method._replace(
    begin=compiled(method.begin),
    carry=compiled(method.carry),
    # Plain floats are moved as they are; compiled code would copy them.
    send=method.send
    if method.traits.lossless
    else tuple(compiled(send) for send in method.send),
    decode=compiled(method.decode),
    estimate=compiled(method.estimate),
    finish=compiled(method.finish),
    compiled=False,
  )


def begin_with_norms(gradients, states, context):
  """`Method.begin` where there is nothing to agree on: probes are norms."""
  del states
  return gradients, statistics.norms(each(gradients, context))


def sizes_of(shapes):
  """Elements of each shape, list of int."""
  return [tf.TensorShape(shape).num_elements() for shape in shapes]


def flat(gradients):
  """Gradients as one float32 [elements]; a single tensor is not copied."""
  return gradients[0] if len(gradients) == 1 else tf.concat(gradients, axis=0)


def each(gradients, context):
  """Gradients as a list of v float32, flat; nothing is copied if they are."""
  sizes = context.sizes
  if len(gradients) == len(sizes):
    return gradients
  return tf.split(gradients[0], sizes)


def shaped(gradients, context):
  """Gradients as a list of v float32 of the shapes."""
  pairs = zip(each(gradients, context), context.shapes, strict=True)
  return [tf.reshape(gradient, shape) for gradient, shape in pairs]
