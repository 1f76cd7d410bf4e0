"""Bidirectional compression: the mean of the gradients is coded too.

Variables are cut into as many ranges as there are workers. Each worker codes
every range by itself and sends it to the worker whose it is; that one decodes
the mean of all, codes it again, by the same code, and sends it to all. So a
worker sends and receives twice the words of its own gradients, about, however
many workers there are, where a gather grows with their number.

What the way back leaves out waits as a residual of the range's worker: error
feedback on the server's side. With `error_feedback+` before it, the workers
keep residuals of their own gradients too.

Tang et al., DoubleSqueeze, ICML 2019, https://arxiv.org/abs/1905.05957,
algorithm 1, for residuals on both sides; Sattler et al., Robust and
Communication-Efficient Federated Learning, 2019,
https://arxiv.org/abs/1903.02891, section V, for sparse ternary codes both ways;
Tang et al., 1-bit Adam, ICML 2021, https://arxiv.org/abs/2102.02888, section
5.2, for ranges in place of a server. Departure: each range of each variable
has scales of its own, both ways.
"""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any
from typing import cast

import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.codec import wrapper
from terngrad.codec.stages import contract
from terngrad.codec.stages import random_bits
from terngrad.codec.stages import wire

RESIDUAL = 'mean_residual'
_THERE, _BACK = 0, 1
# Streams of buckets are smaller numbers.
_STREAMS = 2**32
# Folded into a bucket's key, where `random_bits` has 1 and 2.
_PLACES = 3


def bidirectional(
  method: methods.Method, workers: int = 0, residual: bool = True
) -> methods.Method:
  """Wraps a method.

  In float32 steps in between residuals are sent too, and none is left.

  Args:
    method: one of one round and fixed length that remembers nothing.
    workers: N, how many there are.
    residual: whether what the way back leaves out is sent later.

  Returns:
    A `method.Method` of two rounds.

  Raises:
    ValueError: the method is of another kind, or N is not known.
  """
  if not workers or workers < 1:
    raise ValueError(
      f'bidirectional: expected how many workers there are, received {workers}.'
      ' Say bidirectional:workers=4.'
    )
  _check(method)
  return Bidirectional(method, workers, residual)


def _check(method: methods.Method) -> None:
  """Refuses a method that ranges cannot be coded by."""
  shapes = ((8, 8),)
  rounds = method.messages(shapes)
  if len(rounds) > 1 or method.finishes or method.states(shapes):
    raise ValueError(
      'bidirectional: expected a code of one round that remembers nothing, '
      f'received {method.name}. Put error_feedback+ or momentum+ before '
      'bidirectional+, and use no method of several rounds.'
    )
  if method.carries:
    raise ValueError(
      'bidirectional: expected a method that keeps gradients until they are '
      f'sent, received {method.name}. Leave sharing=requantize out.'
    )
  if any(isinstance(m.packing, wire.VariablePacking) for m in rounds[0]):
    raise ValueError(
      f'bidirectional: expected a code of fixed length, received {method.name}.'
      ' Leave its packing out.'
    )


class Bidirectional(wrapper.Wrapper):
  """See `bidirectional`."""

  def __init__(
    self, method: methods.Method, workers: int, residual: bool
  ) -> None:
    """See `bidirectional`."""
    super().__init__(method)
    self.workers, self.residual = workers, residual
    self.name = (
      f'bidirectional{"" if residual else "(forgets)"} > {method.name}'
    )
    self.traits = method.traits._replace(
      unbiased=method.traits.unbiased and not residual,
      lossless=False,
      additive=False,
    )
    self.num_rounds, self.telling = 2, 0
    self.max_workers = self.digits = self.unit = None
    if method.traits.randomness != 'none':
      # Bits are drawn by the place in a range, which depends on all variables.
      self.scope = contract.BUCKET

  def around(self, method: methods.Method) -> methods.Method:
    """See `wrapper.Wrapper`."""
    return Bidirectional(method, self.workers, self.residual)

  def in_float(self, plain: methods.Method) -> methods.Method:
    """See `method.Method`."""
    return _InFloat(plain, self)

  def width(self, size: int) -> int:
    """Elements of a range of a variable; the last ends with zeros."""
    return -(-size // self.workers)

  def ranges(self, shapes: methods.Shapes) -> tuple[tuple[int], ...]:
    """The shapes of a range of each variable."""
    return tuple((self.width(size),) for size in methods.sizes_of(shapes))

  def num_probes(self, num_elements: int) -> int:
    """See `method.Method`: each range has its own, where they are of use."""
    if not self.method.agrees:
      return self.method.num_probes(num_elements)
    return self.workers * self.method.num_probes(self.width(num_elements))

  def states(self, shapes: methods.Shapes) -> tuple[methods.State, ...]:
    """See `method.Method`."""
    if not self.residual:
      return ()
    return tuple(
      methods.State(RESIDUAL, methods.WORKER, i, shape, dealt=methods.RANGES)
      for i, shape in enumerate(self.ranges(shapes))
    )

  def messages(self, shapes: methods.Shapes) -> methods.Rounds:
    """See `method.Method`."""
    words = sum(m.num_words for m in self._inner(shapes))
    back = sum(self._counts(shapes)) + words
    return (
      (methods.Message(methods.SCATTER, self.workers * words),),
      (methods.gathered(back),),
    )

  def begin(
    self,
    gradients: methods.Tensors,
    states: methods.Tensors,
    context: methods.Context,
  ) -> tuple[methods.Tensors, tf.Tensor]:
    """See `method.Method`."""
    del states
    if context.num_workers != self.workers:
      raise ValueError(
        f'bidirectional: expected {self.workers} workers, received '
        f'{context.num_workers}. Say workers={context.num_workers} in it.'
      )
    if not self.method.agrees:
      return gradients, self.method.begin(gradients, (), context)[1]
    rows = self._cut(methods.each(gradients, context))

    def probe(number: tf.Tensor) -> tf.Tensor:
      own = [row[number] for row in rows]
      return self.method.begin(own, (), self._at(context, number, _THERE))[1]

    return gradients, self._by_variable(self._map(probe, tf.float32), context)

  def send(
    self,
    number: int,
    gradients: methods.Tensors,
    states: methods.Tensors,
    received: methods.Arrived,
    context: methods.Context,
  ) -> tuple[list[tf.Tensor], methods.Tensors]:
    """Every range, coded, to its worker; then the mean of the own range."""
    if number == 1:
      return self._send_back(states, received, context)
    rows = self._cut(methods.each(gradients, context))

    def encode(number: tf.Tensor) -> tf.Tensor:
      own = [row[number] for row in rows]
      where = self._at(context, number, _THERE)
      words, _ = self.method.send(0, own, (), [], where)
      return tf.concat(words, axis=0)

    return [tf.reshape(self._map(encode, tf.int32), [-1])], states

  def _send_back(
    self,
    states: methods.Tensors,
    received: methods.Arrived,
    context: methods.Context,
  ) -> tuple[list[tf.Tensor], methods.Tensors]:
    """Round 1: the mean of the own range, coded, to all."""
    ((arrived,),) = received
    # Of what was scattered `send` has its own part.
    pieces = cast(methods.Payloads, arrived).pieces
    worker = context.worker
    there = self._at(context, worker, _THERE)
    parts = methods.payloads(self._inner(context.shapes), pieces)
    means, _ = self.method.decode([parts], (), there)
    if self.residual:
      means = [m + state for m, state in zip(means, states, strict=True)]
    values = self._elements(means, worker, context)
    back = self._at(context, worker, _BACK)
    coded, probe = self.method.begin(values, (), back)
    back = back._replace(own=probe, shared=probe)
    words, _ = self.method.send(0, coded, (), [], back)
    if self.residual:
      said = self._decoded(tf.concat(words, axis=0), back, context)
      left_out = [v - s for v, s in zip(values, said, strict=True)]
      states = self._elements(left_out, worker, context)
    if self.method.agrees:
      words = [tf.bitcast(probe, tf.int32), *words]
    return [tf.concat(words, axis=0)], states

  def decode(
    self,
    received: methods.Arrived,
    states: methods.Tensors,
    context: methods.Context,
  ) -> tuple[list[tf.Tensor], methods.Tensors]:
    """See `method.Method`."""
    _, (arrived,) = received
    # Round 1 is gathered.
    rows = methods.rows_in_order(cast(methods.Payloads, arrived).parts)
    num_probes = sum(self._counts(context.shapes))

    def decoded(number: tf.Tensor) -> list[tf.Tensor]:
      row = rows[number]
      probe = tf.bitcast(row[:num_probes], tf.float32)
      back = self._at(context, number, _BACK)._replace(shared=probe)
      return self._decoded(row[num_probes:], back, context)

    pieces = self._map(decoded, [tf.float32] * len(context.shapes))
    whole = self._joined(pieces, context)
    return methods.shaped(whole, context), states

  def estimate(
    self, words: methods.Tensors, context: methods.Context
  ) -> list[tf.Tensor]:
    """See `method.Method`."""
    rows = tf.reshape(words[0], [self.workers, -1])
    sizes = [m.num_words for m in self._inner(context.shapes)]

    def said(number: tf.Tensor) -> methods.Tensors:
      where = self._at(context, number, _THERE)
      own = self.method.estimate(tf.split(rows[number], sizes), where)
      return methods.each(own, where)

    pieces = self._map(said, [tf.float32] * len(context.shapes))
    return self._joined(pieces, context)

  def placed(
    self,
    residuals: methods.Tensors,
    worker: tf.Tensor,
    context: methods.Context,
  ) -> list[tf.Tensor]:
    """A worker's ranges as float32 [n] of whole variables, zeros elsewhere."""
    is_own = tf.range(self.workers)[:, tf.newaxis] == worker
    rows = [tf.where(is_own, residual, 0.0) for residual in residuals]
    return self._joined(rows, context)

  def _inner(self, shapes: methods.Shapes) -> Sequence[methods.Message]:
    """The messages of one range."""
    return self.method.messages(self.ranges(shapes))[0]

  def _counts(self, shapes: methods.Shapes) -> list[int]:
    """For each variable how many numbers of a range's probe are of it."""
    if not self.method.agrees:
      return [0] * len(shapes)
    return [self.method.num_probes(width) for (width,) in self.ranges(shapes)]

  def _elements(
    self, values: methods.Tensors, number: tf.Tensor, context: methods.Context
  ) -> list[tf.Tensor]:
    """A range with zeros where it is longer than its variables."""
    found = []
    for own, size in zip(values, context.sizes, strict=True):
      width = self.width(size)
      exists = number * width + tf.range(width) < size
      found.append(tf.where(exists, own, 0.0))
    return found

  def _cut(self, gradients: methods.Tensors) -> list[tf.Tensor]:
    """List of float32 [n] as list of [workers, width]."""
    rows = []
    for values in gradients:
      width = self.width(values.shape[0])
      missing = self.workers * width - values.shape[0]
      # Nothing is copied where nothing is missing.
      values = tf.pad(values, [[0, missing]]) if missing else values
      rows.append(tf.reshape(values, [self.workers, width]))
    return rows

  def _joined(
    self, rows: methods.Tensors, context: methods.Context
  ) -> list[tf.Tensor]:
    """List of [workers, width] as list of float32 [n]; undoes `_cut`."""
    return [
      tf.reshape(values, [-1])[:size]
      for values, size in zip(rows, context.sizes, strict=True)
    ]

  def _by_variable(
    self, probes: tf.Tensor, context: methods.Context
  ) -> tf.Tensor:
    """Probes float32 [workers, p] of the ranges, those of a variable joined."""
    parts = tf.split(probes, self._counts(context.shapes), axis=1)
    return tf.concat([tf.reshape(part, [-1]) for part in parts], axis=0)

  def _of_range(
    self,
    probe: tf.Tensor | None,
    number: tf.Tensor,
    context: methods.Context,
  ) -> tf.Tensor | None:
    """What `_by_variable` joined, of one range; None of None."""
    if probe is None or not self.method.agrees:
      return None
    counts = self._counts(context.shapes)
    parts = tf.split(probe, [self.workers * count for count in counts])
    rows = [tf.reshape(part, [self.workers, -1])[number] for part in parts]
    return tf.concat(rows, axis=0)

  def _at(
    self, context: methods.Context, number: tf.Tensor, way: int
  ) -> methods.Context:
    """The `method.Context` of a range, there or back."""
    place = 2 * number + way
    stream = tf.cast(place + 1, tf.int64) * _STREAMS + context.stream
    key = context.key
    there = way == _THERE
    return context._replace(
      shapes=self.ranges(context.shapes),
      num_workers=self.workers if there else 1,
      stream=stream,
      key=None if key is None else _of_place(key, place),
      own=self._of_range(context.own, number, context) if there else None,
      shared=self._of_range(context.shared, number, context) if there else None,
    )

  def _decoded(
    self, words: tf.Tensor, back: methods.Context, context: methods.Context
  ) -> list[tf.Tensor]:
    """What one payload of a range says, list of float32 [width]."""
    pieces = [methods.Piece(0, [words[tf.newaxis]])]
    received = [methods.payloads(self._inner(context.shapes), pieces)]
    return self.method.decode(received, (), back)[0]

  def _map(self, function: Callable[[tf.Tensor], Any], dtypes: Any) -> Any:
    """A function of the number of a range, for all of them, stacked."""
    return tf.map_fn(
      function,
      tf.range(self.workers),
      fn_output_signature=dtypes,
      parallel_iterations=1,
    )


def _of_place(key: tf.Tensor, place: tf.Tensor) -> tf.Tensor:
  """The key of a range, there or back, uint32 [3] from the bucket's."""
  folded = random_bits.fold_in(key[:2], _PLACES)
  folded = random_bits.fold_in(folded, place)
  return tf.concat([folded, key[2:]], axis=0)


class _InFloat(wrapper.Wrapper):
  """The method of float32 steps, in which residuals are sent."""

  def __init__(self, plain: methods.Method, both: Bidirectional) -> None:
    super().__init__(plain)
    self.both = both

  def around(self, method: methods.Method) -> methods.Method:
    return _InFloat(method, self.both)

  def states(self, shapes: methods.Shapes) -> tuple[methods.State, ...]:
    return self.both.states(shapes)

  def begin(
    self,
    gradients: methods.Tensors,
    states: methods.Tensors,
    context: methods.Context,
  ) -> tuple[methods.Tensors, tf.Tensor]:
    gradients = methods.each(gradients, context)
    both = self.both
    if both.residual:
      owed = both.placed(states, context.worker, context)
      # The mean is over all workers, of whom one owes this.
      gradients = [
        gradient + both.workers * late
        for gradient, late in zip(gradients, owed, strict=True)
      ]
    return self.method.begin(gradients, (), context)

  def send(
    self,
    number: int,
    gradients: methods.Tensors,
    states: methods.Tensors,
    received: methods.Arrived,
    context: methods.Context,
  ) -> tuple[list[tf.Tensor], methods.Tensors]:
    words, _ = self.method.send(number, gradients, (), received, context)
    return words, [tf.zeros_like(state) for state in states]
