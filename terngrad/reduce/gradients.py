"""The methods of all variables of a model at work together.

Variables that a policy gives the same method form a bucket. What a worker sends
in a round is one flat int32 tensor, the messages of its buckets one after the
other; its probe is the vector of its variables' probes. So an exchange moves
few flat tensors whatever the model is.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.codec.stages import random_bits
from terngrad.reduce import buckets as buckets_lib

# For each bucket a list of tensors.
OfBuckets = Sequence[methods.Tensors]


class WorkerStep(NamedTuple):
  """Identifies one worker in one step: seed, step, rank, keys, probes.

  Attributes:
    seed: int64 [] or integer, of the run.
    step: int64 [], steps taken before this one.
    num_workers: N.
    worker: int32 [], its number; None for what all workers compute alike.
    keys: uint32 [buckets, 3], from `GradientCodec.keys`; None where they are
      made of the rest when they are needed.
    own: float32 [num_probes], its probe; None before there is one.
    shared: float32 [num_probes], the agreed probe; None before there is one.
  """

  seed: tf.Tensor | int
  step: tf.Tensor
  num_workers: int
  worker: tf.Tensor | None = None
  keys: tf.Tensor | None = None
  own: tf.Tensor | None = None
  shared: tf.Tensor | None = None


@dataclasses.dataclass(frozen=True)
class GradientCodec:
  """Codes the gradients of a model; made by `bucketing.gradient_codec`.

  One of a fragment codes those of some variables; see `fragments`.

  Carried gradients and states are lists with an entry a bucket, which is a list
  of tensors; see `method.Method`.

  Attributes:
    buckets: tuple of `buckets.Bucket`; every variable that is coded is in one.
  """

  buckets: tuple[buckets_lib.Bucket, ...]

  @property
  def lossless(self) -> bool:
    """True where messages are the gradients' own bits."""
    return all(bucket.method.traits.lossless for bucket in self.buckets)

  @property
  def compiled(self) -> bool:
    """True where the methods want to be compiled; see `method.Method`."""
    return all(bucket.method.compiled for bucket in self.buckets)

  @property
  def variables(self) -> list[int]:
    """Indices in the model of the variables that are coded, ascending."""
    return sorted(self._order)

  @property
  def num_variables(self) -> int:
    """Variables that are coded."""
    return len(self.variables)

  @property
  def num_fragments(self) -> int:
    """See `fragments`."""
    return len({bucket.fragment for bucket in self.buckets})

  @property
  def num_elements(self) -> int:
    """Gradient elements of all variables that are coded."""
    return sum(bucket.num_elements for bucket in self.buckets)

  @property
  def num_probes(self) -> int:
    """Numbers that the workers agree on."""
    return sum(sum(bucket.num_probes) for bucket in self.buckets)

  @property
  def num_rounds(self) -> int:
    """Rounds of messages."""
    return max((b.method.num_rounds for b in self.buckets), default=0)

  @property
  def num_words(self) -> int:
    """Words of a worker's messages of all rounds, sent or not."""
    return sum(map(self.round_words, range(self.num_rounds)))

  @property
  def finishes(self) -> bool:
    """Whether a worker remembers what depends on the mean gradients."""
    return any(bucket.method.finishes for bucket in self.buckets)

  def round_words(self, number: int) -> int:
    """Words of a worker's messages of a round, sent or not."""
    return sum(bucket.num_words(number) for bucket in self.buckets)

  def messages(self, number: int) -> list[methods.Message]:
    """The `method.Message`s of a round, in the order of their words."""
    return [m for bucket in self.buckets for m in bucket.messages(number)]

  def states(self) -> list[tuple[methods.State, ...]]:
    """For each bucket a tuple of `method.State`."""
    return [bucket.states for bucket in self.buckets]

  def carried_sizes(self) -> list[tuple[tf.DType, int]]:
    """For each bucket (dtype, elements) of what a worker carries, stacked."""
    return [
      (tf.int32, bucket.method.carry_words(bucket.shapes))
      if bucket.method.carries
      else (tf.float32, bucket.num_elements)
      for bucket in self.buckets
    ]

  def bits(self, num_workers: int) -> float:
    """Bits that one worker sends a step, probes included.

    The mean for Gaussian gradients where a message's length varies.
    """
    del num_workers  # methods so far cost the same for any number
    words = [
      message.expected_words
      for number in range(self.num_rounds)
      for message in self.messages(number)
    ]
    return 32 * (sum(words) + self.num_probes)

  def sent_words(self, payloads: tf.Tensor, number: int = 0) -> tf.Tensor:
    """How many words of a round must be sent; the others are zero.

    Args:
      payloads: int32 [n, words of the round].
      number: of the round.

    Returns:
      int32 [n].
    """
    messages = self.messages(number)
    sizes = [message.num_words for message in messages]
    parts = split(payloads, sizes, axis=1)
    return tf.add_n(
      [
        message.sent_words(part)
        for message, part in zip(messages, parts, strict=True)
      ]
    )

  def flatten(self, gradients: methods.Tensors) -> tf.Tensor:
    """All gradients as float32 [num_elements], bucket after bucket."""
    own = [tf.reshape(gradients[i], [-1]) for i in self._order]
    return tf.concat(own, axis=0)

  def keys(
    self, seed: tf.Tensor | int, step: tf.Tensor, worker: tf.Tensor
  ) -> tf.Tensor:
    """The keys of the buckets of one worker; see `random_bits.of_buckets`."""
    streams = [(bucket.stream, bucket.method.strata) for bucket in self.buckets]
    return random_bits.of_buckets(streams, seed, step, worker)

  def begin(
    self,
    gradients: methods.Tensors,
    states: OfBuckets,
    step: WorkerStep,
  ) -> tuple[OfBuckets, tf.Tensor]:
    """What a worker codes, and what its gradients ask to agree on.

    Args:
      gradients: list of float32, in the order and shapes of the variables.
      states: of the worker and those that are shared.
      step: `WorkerStep`.

    Returns:
      (carried gradients; float32 [num_probes], in the order of the variables:
      an entry is not finite where a gradient is not).
    """
    carried, probes = [], []
    for index, bucket in enumerate(self.buckets):
      own = [tf.reshape(gradients[i], [-1]) for i in bucket.indices]
      values, probe = bucket.method.begin(
        own, states[index], self._context(index, step)
      )
      carried.append(values)
      probes.append(probe)
    return carried, tf.gather(tf.concat(probes, axis=0), self._probe_order)

  def carry(self, carried: OfBuckets, step: WorkerStep) -> OfBuckets:
    """What a worker keeps of `begin`'s gradients until there is a round.

    Args:
      carried: from `begin`.
      step: `WorkerStep` with `own`.

    Returns:
      Carried gradients, or words in their stead.
    """
    step = self._with_keys(step)
    return [
      [bucket.method.carry(values, self._context(index, step))]
      if bucket.method.carries
      else values
      for index, (bucket, values) in enumerate(
        zip(self.buckets, carried, strict=True)
      )
    ]

  def send(
    self,
    number: int,
    carried: OfBuckets,
    states: OfBuckets,
    received: methods.Arrived,
    step: WorkerStep,
  ) -> tuple[tf.Tensor, OfBuckets]:
    """A worker's messages of a round.

    Args:
      number: of the round, from 0.
      carried: from `carry`.
      states: of the worker and those that are shared.
      received: for each round before what the exchange gave: a list of
        `method.Payloads` or `method.Sum`, one for each of `messages`.
      step: `WorkerStep` with both probes.

    Returns:
      (int32 [words of the round], states).
    """
    step = self._with_keys(step)
    words, after = [], []
    for index, bucket in enumerate(self.buckets):
      state = states[index]
      if number < bucket.method.num_rounds:
        values, state = bucket.method.send(
          number,
          carried[index],
          state,
          self.received(index, received),
          self._context(index, step),
        )
        words += values
      after.append(state)
    return _join(words, axis=0), after

  def decode(
    self,
    received: methods.Arrived,
    states: OfBuckets,
    step: WorkerStep,
    only: Sequence[int] | None = None,
  ) -> tuple[list[tf.Tensor], OfBuckets]:
    """The mean gradients.

    Args:
      received: see `send`, of all rounds.
      states: those that are shared, None in place of workers' own.
      step: `WorkerStep` without worker.
      only: numbers of buckets, to leave out all others; None for all.

    Returns:
      (list of float32, in the order and shapes of the variables; states).
    """
    means: dict[int, tf.Tensor] = {}
    after = []
    for index in range(len(self.buckets)) if only is None else only:
      bucket = self.buckets[index]
      values, state = bucket.method.decode(
        self.received(index, received),
        states[index],
        self._context(index, step),
      )
      means |= zip(bucket.indices, values, strict=True)
      after.append(state)
    return [means[i] for i in sorted(means)], after

  def means(
    self,
    received: methods.Arrived,
    step: WorkerStep,
    only: Sequence[int] | None = None,
  ) -> list[tf.Tensor]:
    """The mean gradients of methods without states; see `decode`."""
    return self.decode(received, [()] * len(self.buckets), step, only)[0]

  def decode_words(
    self, parts: Sequence[tf.Tensor], shared: tf.Tensor
  ) -> list[tf.Tensor]:
    """The mean gradients of workers, of codes of one round without states.

    Args:
      parts: list of int32 [n, num_words], the payloads as they come from the
        devices; see `method.Piece`.
      shared: float32 [num_probes], the agreed probe.

    Returns:
      List of float32, in the order and shapes of the variables.
    """
    zero = tf.constant(0, tf.int64)
    count = sum(part.shape[0] for part in parts)
    piece = methods.Piece(0, list(parts))
    received = methods.payloads(self.messages(0), [piece])
    step = WorkerStep(zero, zero, count, shared=shared)
    return self.means([received], step)

  def estimate(
    self, words: methods.Tensors, step: WorkerStep
  ) -> tf.Tensor | None:
    """What a worker's messages say of its own gradients.

    Args:
      words: for each round int32 [words of the round], from `send`.
      step: `WorkerStep` with both probes.

    Returns:
      float32 [num_elements], in the order of `flatten`; None where a method's
      messages say it of the mean alone.
    """
    found = []
    for index, bucket in enumerate(self.buckets):
      if not bucket.method.estimates:
        return None
      number = bucket.method.telling % bucket.method.num_rounds
      sizes = [message.num_words for message in bucket.messages(number)]
      of_buckets = [b.num_words(number) for b in self.buckets]
      own = split(words[number], of_buckets, axis=0)[index]
      context = self._context(index, step)
      found += bucket.method.estimate(split(own, sizes, axis=0), context)
    return _join(found, axis=0)

  def finish(
    self,
    carried: OfBuckets,
    states: OfBuckets,
    means: methods.Tensors,
    step: WorkerStep,
  ) -> OfBuckets:
    """The states of a worker, when the means are known.

    Args:
      carried: from `carry`.
      states: see `send`.
      means: from `decode`.
      step: `WorkerStep` with both probes.

    Returns:
      States.
    """
    step = self._with_keys(step)
    after = []
    for index, bucket in enumerate(self.buckets):
      state = states[index]
      if bucket.method.finishes:
        own = [means[i] for i in bucket.indices]
        context = self._context(index, step)
        state = bucket.method.finish(carried[index], state, own, context)
      after.append(state)
    return after

  def probed_variables(self) -> np.ndarray:
    """For each number of the probe the variable that it is of."""
    return np.sort(self._probed)

  @functools.cached_property
  def probes_of_buckets(self) -> list[np.ndarray]:
    """For each bucket where its numbers are in the probe, as int arrays."""
    ends = np.cumsum([sum(bucket.num_probes) for bucket in self.buckets])
    return np.split(np.argsort(self._probe_order), ends[:-1])

  @functools.cached_property
  def _order(self) -> list[int]:
    """The variables, bucket after bucket."""
    return [i for bucket in self.buckets for i in bucket.indices]

  @functools.cached_property
  def _probed(self) -> np.ndarray:
    """For each number of the buckets' probes the variable that it is of."""
    counts = [n for bucket in self.buckets for n in bucket.num_probes]
    return np.repeat(self._order, counts)

  @functools.cached_property
  def _probe_order(self) -> np.ndarray:
    """Int array, from the order of the buckets to that of the variables."""
    return np.argsort(self._probed, kind='stable')

  def received(self, index: int, received: methods.Arrived) -> methods.Arrived:
    """What a bucket received: for each of its rounds a list, one a message."""
    found = []
    for number, of_all in enumerate(received):
      counts = [len(bucket.messages(number)) for bucket in self.buckets]
      first = sum(counts[:index])
      if counts[index]:
        found.append(of_all[first : first + counts[index]])
    return found

  def _with_keys(self, step: WorkerStep) -> WorkerStep:
    """The `WorkerStep` with the keys of its worker."""
    if step.keys is not None or step.worker is None:
      return step
    return step._replace(keys=self.keys(step.seed, step.step, step.worker))

  def _context(self, index: int, step: WorkerStep) -> methods.Context:
    """The `method.Context` of a bucket."""
    bucket = self.buckets[index]
    numbers = self.probes_of_buckets[index]

    def pick(probe: tf.Tensor | None) -> tf.Tensor | None:
      return None if probe is None else tf.gather(probe, numbers)

    return methods.Context(
      shapes=bucket.shapes,
      num_workers=step.num_workers,
      stream=bucket.stream,
      start=bucket.start,
      seed=step.seed,
      step=step.step,
      worker=step.worker,
      key=None if step.keys is None else step.keys[index],
      own=pick(step.own),
      shared=pick(step.shared),
    )


def agree(probes: tf.Tensor) -> tf.Tensor:
  """The agreed probe of float32 [workers, num_probes]: the largest.

  It is not finite where a worker's is not: XLA's own maximum passes over NaN.
  """
  finite = tf.reduce_all(tf.math.is_finite(probes), axis=0)
  return tf.where(finite, tf.reduce_max(probes, axis=0), float('nan'))


def _join(parts: methods.Tensors, axis: int) -> tf.Tensor:
  """The concatenation; one part is not copied."""
  return parts[0] if len(parts) == 1 else tf.concat(parts, axis)


def split(
  tensor: tf.Tensor, sizes: Sequence[int], axis: int
) -> list[tf.Tensor]:
  """The parts of a tensor; one part is not copied."""
  return [tensor] if len(sizes) == 1 else tf.split(tensor, sizes, axis)
