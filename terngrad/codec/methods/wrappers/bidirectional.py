"""Bidirectional compression: the mean of the gradients is encoded too.

Each variable is cut into as many ranges as there are workers, and each range
belongs to one worker. Each worker encodes every range separately and sends it
to the range's worker. That worker decodes the mean, encodes it with the same
code, and sends it to all. So each worker sends and receives about twice the
words of its gradients, for any number of workers; with an all-gather it
receives words in proportion to the number of workers.

The worker of a range keeps the error of the second encoding as a residual:
error feedback on the server's side. With `error_feedback+` in front, the
workers also keep residuals of their gradients.

Tang et al., DoubleSqueeze, ICML 2019, https://arxiv.org/abs/1905.05957,
algorithm 1, for residuals on both sides; Sattler et al., Robust and
Communication-Efficient Federated Learning, 2019,
https://arxiv.org/abs/1903.02891, section V, for sparse ternary codes in both
directions; Tang et al., 1-bit Adam, ICML 2021,
https://arxiv.org/abs/2102.02888, section 5.2, for ranges instead of a server.
Departure: each range of each variable has separate scales, in both directions.
"""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any
from typing import cast

import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.codec import wrapper
from terngrad.codec.methods.wrappers import float_steps
from terngrad.codec.methods.wrappers import ranges
from terngrad.codec.stages import contract
from terngrad.codec.stages import random_bits
from terngrad.codec.stages import transport
from terngrad.codec.stages import wire

RESIDUAL = 'mean_residual'
_SCATTER, _GATHER = 0, 1
# The stream numbers of buckets are below this.
_STREAMS = 2**32
# Folded into a bucket's key; `random_bits` uses 1 and 2.
_RANGES = 3


def bidirectional(
  method: methods.Method, workers: int = 0, residual: bool = True
) -> methods.Method:
  """Wraps a method; a second round encodes the mean of the gradients.

  Float32 steps between compressed steps also send the residuals and set them to
  zero.

  Args:
    method: a method of one round and fixed length, without states.
    workers: N, the number of workers.
    residual: whether to keep the error of the second encoding and send it
      later.

  Raises:
    ValueError: the method is of another kind, or `workers` is not set.
  """
  if not workers or workers < 1:
    raise ValueError(
      f'bidirectional: expected the number of workers, received {workers}. Use '
      'bidirectional:workers=4.'
    )
  ranges.check(method)
  return Bidirectional(method, workers, residual)


class Bidirectional(wrapper.Wrapper):
  """A method of two rounds that encodes gradients and their mean."""

  def __init__(
    self, method: methods.Method, workers: int, residual: bool
  ) -> None:
    """Creates the wrapper; see `bidirectional` for the arguments."""
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
    self.num_rounds, self.estimated_round = 2, 0
    self.max_workers = self.digits = self.unit = None
    if method.traits.randomness != 'none':
      # Random bits depend on the position in a range, and so on all variables.
      self.scope = contract.BUCKET

  def wrap(self, method: methods.Method) -> methods.Method:
    """Wraps another method with the same options."""
    return Bidirectional(method, self.workers, self.residual)

  def in_float(self, plain: methods.Method) -> methods.Method:
    """Returns the method of float32 steps, which also sends the residuals."""
    return float_steps.ResidualSteps(plain, self)

  def shapes_of_range(self, shapes: methods.Shapes) -> tuple[tuple[int], ...]:
    """Returns the shape of one range of each variable."""
    sizes = methods.sizes_of(shapes)
    return tuple((ranges.width(size, self.workers),) for size in sizes)

  def num_probes(self, num_elements: int) -> int:
    """Returns the size of a variable's probe.

    If the wrapped method uses agreed probes, each range has a separate one.
    """
    if not self.method.agrees:
      return self.method.num_probes(num_elements)
    width = ranges.width(num_elements, self.workers)
    return self.workers * self.method.num_probes(width)

  def states(self, shapes: methods.Shapes) -> tuple[methods.State, ...]:
    """Declares the residuals of this worker's range, if they are enabled."""
    if not self.residual:
      return ()
    return tuple(
      methods.State(
        RESIDUAL, methods.WORKER, i, shape, resharding=methods.RANGES
      )
      for i, shape in enumerate(self.shapes_of_range(shapes))
    )

  def messages(self, shapes: methods.Shapes) -> methods.Rounds:
    """Declares two rounds: scatter the ranges, then all-gather their means."""
    words = sum(m.num_words for m in self._range_messages(shapes))
    return (
      (methods.Message(methods.SCATTER, self.workers * words),),
      (methods.gathered(sum(self._probe_counts(shapes)) + words),),
    )

  def begin(
    self,
    gradients: methods.Tensors,
    states: methods.Tensors,
    context: methods.Context,
  ) -> tuple[methods.Tensors, tf.Tensor]:
    """Returns the gradients unchanged, and the probes of all ranges."""
    if context.num_workers != self.workers:
      raise ValueError(
        f'bidirectional: expected {self.workers} workers, received '
        f'{context.num_workers}. Use '
        f'bidirectional:workers={context.num_workers}.'
      )
    if not self.method.agrees:
      return gradients, self.method.begin(gradients, (), context)[1]
    rows = ranges.cut(methods.each(gradients, context), self.workers)

    def probe(number: tf.Tensor) -> tf.Tensor:
      inner = self._range_context(context, number, _SCATTER)
      return self.method.begin([row[number] for row in rows], (), inner)[1]

    probes = self._map(probe, tf.float32)
    counts = self._probe_counts(context.shapes)
    return gradients, ranges.probes_of_all(probes, counts)

  def send(
    self,
    number: int,
    gradients: methods.Tensors,
    states: methods.Tensors,
    received: methods.ReceivedRounds,
    context: methods.Context,
  ) -> tuple[list[tf.Tensor], methods.Tensors]:
    """Sends each range to its worker, then the local range's mean to all."""
    if number == 1:
      return self._send_mean(states, received, context)
    rows = ranges.cut(methods.each(gradients, context), self.workers)

    def encode(number: tf.Tensor) -> tf.Tensor:
      local = [row[number] for row in rows]
      inner = self._range_context(context, number, _SCATTER)
      return _joined(self.method.send(0, local, (), [], inner)[0])

    words = tf.reshape(self._map(encode, tf.float32), [-1])
    return [transport.to_int32(words)], states

  def _send_mean(
    self,
    states: methods.Tensors,
    received: methods.ReceivedRounds,
    context: methods.Context,
  ) -> tuple[list[tf.Tensor], methods.Tensors]:
    """Encodes the local range's mean for round 1; updates the residual."""
    ((payloads,),) = received
    # Of scattered messages `send` receives the parts for this worker.
    pieces = cast(methods.Payloads, payloads).pieces
    scatter = self._range_context(context, context.worker, _SCATTER)
    means = self._decode_range(pieces, scatter, context)
    if self.residual:
      means = [m + state for m, state in zip(means, states, strict=True)]
    arguments = context.worker, context.sizes, self.workers
    values = ranges.clear_padding(means, *arguments)
    gather = self._range_context(context, context.worker, _GATHER)
    coded, probe = self.method.begin(values, (), gather)
    gather = gather._replace(local_probe=probe, shared_probe=probe)
    words, _ = self.method.send(0, coded, (), [], gather)
    if self.residual:
      sent = [methods.Piece(0, [_joined(words)[tf.newaxis]])]
      decoded = self._decode_range(sent, gather, context)
      errors = [v - s for v, s in zip(values, decoded, strict=True)]
      states = ranges.clear_padding(errors, *arguments)
    if self.method.agrees:
      words = [probe, *words]
    return [transport.to_int32(_joined(words))], states

  def decode(
    self,
    received: methods.ReceivedRounds,
    states: methods.Tensors,
    context: methods.Context,
  ) -> tuple[list[tf.Tensor], methods.Tensors]:
    """Decodes the means of all ranges and joins them to variables."""
    _, (payloads,) = received
    # Round 1 is an all-gather.
    parts = cast(methods.Payloads, payloads).moved_parts
    rows = methods.stack_by_worker(list(map(transport.to_float32, parts)))
    num_probes = sum(self._probe_counts(context.shapes))

    def decoded(number: tf.Tensor) -> list[tf.Tensor]:
      row = rows[number]
      probe = row[:num_probes]
      inner = self._range_context(context, number, _GATHER)
      inner = inner._replace(shared_probe=probe)
      sent = [methods.Piece(0, [row[tf.newaxis, num_probes:]])]
      return self._decode_range(sent, inner, context)

    means = self._map(decoded, [tf.float32] * len(context.shapes))
    return methods.shaped(ranges.join(means, context.sizes), context), states

  def estimate(
    self, words: methods.Tensors, context: methods.Context
  ) -> list[tf.Tensor]:
    """Decodes all ranges that this worker sent in round 0."""
    rows = tf.reshape(transport.to_float32(words[0]), [self.workers, -1])
    sizes = [m.num_words for m in self._range_messages(context.shapes)]

    def decode(number: tf.Tensor) -> methods.Tensors:
      inner = self._range_context(context, number, _SCATTER)
      words = list(map(transport.to_int32, tf.split(rows[number], sizes)))
      return methods.each(self.method.estimate(words, inner), inner)

    rows_of_all = self._map(decode, [tf.float32] * len(context.shapes))
    return ranges.join(rows_of_all, context.sizes)

  def _range_messages(
    self, shapes: methods.Shapes
  ) -> Sequence[methods.Message]:
    """Returns the messages of one range."""
    return self.method.messages(self.shapes_of_range(shapes))[0]

  def _probe_counts(self, shapes: methods.Shapes) -> list[int]:
    """Returns how many numbers of a range's probe belong to each variable."""
    if not self.method.agrees:
      return [0] * len(shapes)
    widths = self.shapes_of_range(shapes)
    return [self.method.num_probes(width) for (width,) in widths]

  def _range_context(
    self, context: methods.Context, number: tf.Tensor, direction: int
  ) -> methods.Context:
    """Returns the `method.Context` of a range for one direction."""
    index = 2 * number + direction
    key = context.key
    if key is not None:
      fold_in = random_bits.fold_in_keeping_stratum
      key = fold_in(fold_in(key, _RANGES), index)
    has_probes = direction == _SCATTER and self.method.agrees
    counts = self._probe_counts(context.shapes)
    local_probe, shared_probe = (
      ranges.probes_of(probes, number, counts, self.workers)
      if has_probes and probes is not None
      else None
      for probes in (context.local_probe, context.shared_probe)
    )
    return context._replace(
      shapes=self.shapes_of_range(context.shapes),
      num_workers=self.workers if direction == _SCATTER else 1,
      stream=tf.cast(index + 1, tf.int64) * _STREAMS + context.stream,
      key=key,
      local_probe=local_probe,
      shared_probe=shared_probe,
    )

  def _decode_range(
    self,
    pieces: list[methods.Piece],
    inner: methods.Context,
    context: methods.Context,
  ) -> list[tf.Tensor]:
    """Decodes the payloads of a range to a list of float32 [width]."""
    received = [methods.payloads(self._range_messages(context.shapes), pieces)]
    return self.method.decode(received, (), inner)[0]

  def _map(self, function: Callable[[tf.Tensor], Any], dtypes: Any) -> Any:
    """Maps a function over the numbers of all ranges and stacks the results."""
    return tf.map_fn(
      function,
      tf.range(self.workers),
      fn_output_signature=dtypes,
      parallel_iterations=1,
    )


def _joined(words: Sequence[tf.Tensor]) -> tf.Tensor:
  """Joins the words of several messages; float32, see `transport`."""
  return wire.concat(list(map(transport.to_float32, words)), axis=0)
