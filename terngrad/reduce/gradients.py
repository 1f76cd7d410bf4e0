"""Encodes and decodes the gradients of a whole model, bucket by bucket.

All variables that a policy assigns the same method form a bucket. In each round
a worker sends one flat int32 tensor, the concatenated messages of its buckets.

Before the first round each worker computes a probe: a few float32 numbers for
each variable, such as its norm. The workers agree on the maximum of each.
"""

import dataclasses
import functools
import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from terngrad import aliases
from terngrad.codec import method as methods
from terngrad.codec.stages import random_bits
from terngrad.codec.stages import transport
from terngrad.reduce import buckets as buckets_lib

# One list of tensors per bucket.
BucketTensors = Sequence[methods.Tensors]


class WorkerStep(NamedTuple):
  """Identifies one worker in one step: seed, step, rank, keys, probes.

  Attributes:
    seed: int64 [] or int, the seed of the run.
    step: int64 [], number of steps taken before this one.
    num_workers: N.
    worker: int32 [], index of the worker in [0, N); None for computations that
      are the same for all workers.
    keys: uint32 [buckets, 3], from `GradientCodec.keys`; None derives them from
      seed, step and worker when they are needed.
    local_probe: float32 [num_probes], this worker's; None before `begin`.
    shared_probe: float32 [num_probes], the agreed one; None before the workers
      have agreed.
    origins: int64 [buckets, 2], stream and start of each bucket, in place of
      those of `Bucket`; None for those.
  """

  seed: tf.Tensor | int
  step: tf.Tensor
  num_workers: int
  worker: tf.Tensor | None = None
  keys: tf.Tensor | None = None
  local_probe: tf.Tensor | None = None
  shared_probe: tf.Tensor | None = None
  origins: tf.Tensor | None = None


@dataclasses.dataclass(frozen=True)
class GradientCodec:
  """Encodes and decodes a model's gradients; see `bucketing.gradient_codec`.

  The codec of a fragment handles only the variables of that fragment; see
  `fragments`.

  Carried gradients and states have one entry per bucket. Each entry is a list
  of tensors as `method.Method` defines it.

  Attributes:
    buckets: each coded variable is in exactly one of them.
  """

  buckets: tuple[buckets_lib.Bucket, ...]

  @property
  def lossless(self) -> bool:
    """True if the messages hold the bits of the gradients unchanged."""
    return all(bucket.method.traits.lossless for bucket in self.buckets)

  @property
  def compiled(self) -> bool:
    """True if XLA should compile the methods; see `method.Method`."""
    return all(bucket.method.compiled for bucket in self.buckets)

  @property
  def variables(self) -> list[int]:
    """Indices of the coded variables in the model, ascending."""
    return sorted(self._order)

  @property
  def num_variables(self) -> int:
    """Number of coded variables."""
    return len(self.variables)

  @property
  def num_fragments(self) -> int:
    """Number of fragments: 1 if every step exchanges the whole model."""
    return len({bucket.fragment for bucket in self.buckets})

  @property
  def num_elements(self) -> int:
    """Number of gradient elements of all coded variables."""
    return sum(bucket.num_elements for bucket in self.buckets)

  @property
  def num_probes(self) -> int:
    """Length of the probe, the vector of numbers that workers agree on."""
    return sum(sum(bucket.num_probes) for bucket in self.buckets)

  @property
  def num_rounds(self) -> int:
    """Number of message rounds in a step."""
    return max((b.method.num_rounds for b in self.buckets), default=0)

  @property
  def num_words(self) -> int:
    """Number of int32 words of a worker in all rounds, with unsent ones."""
    return sum(map(self.round_words, range(self.num_rounds)))

  @property
  def decodes_words(self) -> bool:
    """True if the words of a worker are all that decoding them needs.

    Methods of several rounds also need other workers' messages; others need
    states, or the random numbers of the step.
    """
    draws = any(bucket.method.draws_in_decode for bucket in self.buckets)
    return self.num_rounds == 1 and not (draws or self.has_shared_states)

  @property
  def has_shared_states(self) -> bool:
    """True if a state is the same on all devices."""
    found = itertools.chain.from_iterable(self.states())
    return any(state.owner == methods.SHARED for state in found)

  @property
  def finishes(self) -> bool:
    """True if a worker's states depend on the mean gradients."""
    return any(bucket.method.finishes for bucket in self.buckets)

  def round_words(self, number: int) -> int:
    """Number of int32 words of a worker in a round, with unsent ones."""
    return sum(bucket.num_words(number) for bucket in self.buckets)

  def messages(self, number: int) -> list[methods.Message]:
    """The messages of round `number`, in the order of their words."""
    return [m for bucket in self.buckets for m in bucket.messages(number)]

  def states(self) -> list[tuple[methods.State, ...]]:
    """The state declarations of each bucket."""
    return [bucket.states for bucket in self.buckets]

  def carried_sizes(self) -> list[tuple[tf.DType, int]]:
    """(dtype, number of elements) of a worker's carried tensor, per bucket."""
    return [
      (tf.int32, bucket.method.carry_words(bucket.shapes))
      if bucket.method.carries
      else (tf.float32, bucket.num_elements)
      for bucket in self.buckets
    ]

  def bits(self, num_workers: int) -> float:
    """Number of bits that one worker sends in a step, probes included.

    For messages of variable length it is the mean over Gaussian gradients.
    """
    del num_workers  # No method's cost depends on it yet.
    words = [
      message.expected_words
      for number in range(self.num_rounds)
      for message in self.messages(number)
    ]
    return 32 * (sum(words) + self.num_probes)

  def sent_words(self, payloads: tf.Tensor, number: int = 0) -> tf.Tensor:
    """Counts the words of a round that must be sent; the others are zero.

    Args:
      payloads: int32 or float32 [n, words of the round], one row per worker.
      number: index of the round, from 0.

    Returns:
      int32 [n], the count for each row.
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
    """Concatenates all gradients by bucket to float32 [num_elements]."""
    flat = [tf.reshape(gradients[i], [-1]) for i in self._order]
    return tf.concat(flat, axis=0)

  def keys(
    self, seed: tf.Tensor | int, step: tf.Tensor, worker: tf.Tensor
  ) -> tf.Tensor:
    """Derives one worker's random keys, uint32 [buckets, 3].

    `random_bits.bucket_keys` defines them.
    """
    return self._keys(WorkerStep(seed, step, 1, worker))

  def begin(
    self,
    gradients: methods.Tensors,
    states: BucketTensors,
    step: WorkerStep,
  ) -> tuple[BucketTensors, tf.Tensor]:
    """Prepares a worker's gradients for coding and computes its probe.

    Args:
      gradients: float32 in the order and shapes of the variables.
      states: the worker's states and the shared ones.
      step: with a worker; the probes are not needed.

    Returns:
      The carried gradients, and the probe: float32 [num_probes] in the order
      of the variables. An entry of the probe is not finite if its gradient is
      not.
    """
    carried, probes = [], []
    for index, bucket in enumerate(self.buckets):
      flat = [tf.reshape(gradients[i], [-1]) for i in bucket.indices]
      values, probe = bucket.method.begin(
        flat, states[index], self._context(index, step)
      )
      carried.append(values)
      probes.append(probe)
    return carried, tf.gather(tf.concat(probes, axis=0), self._probe_order)

  def carry(self, carried: BucketTensors, step: WorkerStep) -> BucketTensors:
    """Converts `begin`'s gradients to what a worker holds until it sends.

    Args:
      carried: from `begin`.
      step: with a worker and its probe, `local_probe`.

    Returns:
      Per bucket int32 words if its method has `carry`, otherwise its carried
      gradients.
    """
    step = self._add_keys(step)
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
    carried: BucketTensors,
    states: BucketTensors,
    received: methods.ReceivedRounds,
    step: WorkerStep,
  ) -> tuple[tf.Tensor, BucketTensors]:
    """Encodes a worker's messages of one round.

    Args:
      number: index of the round, from 0.
      carried: from `carry`; words may be float32, see `transport`.
      states: the worker's states and the shared ones.
      received: for each earlier round the result of the exchange, with one
        entry per message of `messages`.
      step: with a worker and both probes.

    Returns:
      The messages, int32 [words of the round], and the new states.
    """
    step = self._add_keys(step)
    words, after = [], []
    for index, bucket in enumerate(self.buckets):
      state = states[index]
      if number < bucket.method.num_rounds:
        values, state = bucket.method.send(
          number,
          bucket.carried_values(carried[index]),
          state,
          self.select_received(index, received),
          self._context(index, step),
        )
        words += values
      after.append(state)
    return _join_words(words), after

  def decode(
    self,
    received: methods.ReceivedRounds,
    states: BucketTensors,
    step: WorkerStep,
    only: Sequence[int] | None = None,
  ) -> tuple[list[tf.Tensor], BucketTensors]:
    """Decodes the received messages to the mean gradients.

    Args:
      received: the results of the exchange for all rounds, as in `send`.
      states: the shared states; None for the states of workers.
      step: without a worker, with the agreed probe.
      only: indices of the buckets to decode; None for all.

    Returns:
      The means, float32 in the order and shapes of the variables, and the new
      states.
    """
    means: dict[int, tf.Tensor] = {}
    after = []
    for index in range(len(self.buckets)) if only is None else only:
      bucket = self.buckets[index]
      values, state = bucket.method.decode(
        self.select_received(index, received),
        states[index],
        self._context(index, step),
      )
      means |= zip(bucket.indices, values, strict=True)
      after.append(state)
    return [means[i] for i in sorted(means)], after

  def means(
    self,
    received: methods.ReceivedRounds,
    step: WorkerStep,
    only: Sequence[int] | None = None,
  ) -> list[tf.Tensor]:
    """Decodes the mean gradients of methods without states, as `decode`."""
    return self.decode(received, [()] * len(self.buckets), step, only)[0]

  def decode_words(
    self, parts: Sequence[tf.Tensor], shared_probe: tf.Tensor
  ) -> list[tf.Tensor]:
    """Decodes the mean gradients of codes of one round without states.

    Args:
      parts: int32 or float32 [n, num_words] of each device, the payloads of its
        n workers in the order that `method.Piece` defines.
      shared_probe: float32 [num_probes], the agreed probe.

    Returns:
      float32 in the order and shapes of the variables.
    """
    zero = tf.constant(0, tf.int64)
    count = sum(part.shape[0] for part in parts)
    piece = methods.Piece(0, list(parts))
    received = methods.payloads(self.messages(0), [piece])
    step = WorkerStep(zero, zero, count, shared_probe=shared_probe)
    return self.means([received], step)

  def estimate(
    self, words: methods.Tensors, step: WorkerStep
  ) -> tf.Tensor | None:
    """Decodes one worker's messages to an estimate of its gradients.

    Args:
      words: for each round int32 [words of the round], from `send`.
      step: with a worker and both probes.

    Returns:
      float32 [num_elements] in the order of `flatten`; None if the messages of
      a method can be decoded only to the mean over all workers.
    """
    values = []
    for index, bucket in enumerate(self.buckets):
      if not bucket.method.estimates:
        return None
      number = bucket.method.estimated_round % bucket.method.num_rounds
      sizes = [message.num_words for message in bucket.messages(number)]
      bucket_sizes = [b.num_words(number) for b in self.buckets]
      payload = split(words[number], bucket_sizes, axis=0)[index]
      context = self._context(index, step)
      values += bucket.method.estimate(split(payload, sizes, axis=0), context)
    return _join(values, axis=0)

  def finish(
    self,
    carried: BucketTensors,
    states: BucketTensors,
    means: methods.Tensors,
    step: WorkerStep,
  ) -> BucketTensors:
    """Updates a worker's states from the mean gradients.

    Args:
      carried: from `carry`; words may be float32, see `transport`.
      states: the worker's states and the shared ones.
      means: from `decode`.
      step: with a worker and both probes.

    Returns:
      The new states.
    """
    step = self._add_keys(step)
    after = []
    for index, bucket in enumerate(self.buckets):
      state = states[index]
      if bucket.method.finishes:
        values = [means[i] for i in bucket.indices]
        context = self._context(index, step)
        held = bucket.carried_values(carried[index])
        state = bucket.method.finish(held, state, values, context)
      after.append(state)
    return after

  def probed_variables(self) -> np.ndarray:
    """The variable's index for each number of the probe."""
    return np.sort(self._probe_variables)

  @functools.cached_property
  def probes_of_buckets(self) -> list[np.ndarray]:
    """For each bucket the int indices of its numbers in the probe."""
    ends = np.cumsum([sum(bucket.num_probes) for bucket in self.buckets])
    return np.split(np.argsort(self._probe_order), ends[:-1])

  @functools.cached_property
  def _order(self) -> list[int]:
    """Indices of the variables, bucket after bucket."""
    return [i for bucket in self.buckets for i in bucket.indices]

  @functools.cached_property
  def _probe_variables(self) -> np.ndarray:
    """The variable's index for each number of the buckets' probes."""
    counts = [n for bucket in self.buckets for n in bucket.num_probes]
    return np.repeat(self._order, counts)

  @functools.cached_property
  def _probe_order(self) -> np.ndarray:
    """Int permutation of the probe from bucket order to variable order."""
    return np.argsort(self._probe_variables, kind='stable')

  def select_received(
    self, index: int, received: methods.ReceivedRounds
  ) -> methods.ReceivedRounds:
    """Selects the received messages of one bucket, round by round."""
    selected = []
    for number, round_messages in enumerate(received):
      counts = [len(bucket.messages(number)) for bucket in self.buckets]
      first = sum(counts[:index])
      if counts[index]:
        selected.append(round_messages[first : first + counts[index]])
    return selected

  received = aliases.renamed_attribute('received', 'select_received')

  def _add_keys(self, step: WorkerStep) -> WorkerStep:
    """Adds the random keys of the worker, unless there are some already."""
    if step.keys is not None or step.worker is None:
      return step
    return step._replace(keys=self._keys(step))

  def _keys(self, step: WorkerStep) -> tf.Tensor:
    streams = [
      (self._origin(index, step)[0], bucket.method.strata)
      for index, bucket in enumerate(self.buckets)
    ]
    return random_bits.bucket_keys(streams, step.seed, step.step, step.worker)

  def _origin(
    self, index: int, step: WorkerStep
  ) -> tuple[random_bits.Integer, random_bits.Integer]:
    """(Stream, start) of a bucket."""
    if step.origins is None:
      return self.buckets[index].stream, self.buckets[index].start
    return step.origins[index, 0], step.origins[index, 1]

  def _context(self, index: int, step: WorkerStep) -> methods.Context:
    """Builds the `method.Context` of one bucket."""
    bucket = self.buckets[index]
    numbers = self.probes_of_buckets[index]
    stream, start = self._origin(index, step)

    def pick(probe: tf.Tensor | None) -> tf.Tensor | None:
      return None if probe is None else tf.gather(probe, numbers)

    return methods.Context(
      shapes=bucket.shapes,
      num_workers=step.num_workers,
      stream=stream,
      start=start,
      seed=step.seed,
      step=step.step,
      worker=step.worker,
      key=None
      if step.keys is None
      else random_bits.bucket_key(step.keys, index),
      local_probe=pick(step.local_probe),
      shared_probe=pick(step.shared_probe),
    )


def agree(probes: tf.Tensor) -> tf.Tensor:
  """Computes the agreed probe, float32 [num_probes]: the maximum over workers.

  `probes` is float32 [workers, num_probes]. XLA's maximum ignores NaN, so an
  entry that is not finite for some worker is set to NaN.
  """
  finite = tf.reduce_all(tf.math.is_finite(probes), axis=0)
  return tf.where(finite, tf.reduce_max(probes, axis=0), float('nan'))


def _join(parts: methods.Tensors, axis: int) -> tf.Tensor:
  """Concatenates tensors; does not copy a single one."""
  return parts[0] if len(parts) == 1 else tf.concat(parts, axis)


def _join_words(parts: methods.Tensors) -> tf.Tensor:
  """Concatenates int32 words as float32: on GPUs int32 is in host memory."""
  if len(parts) == 1:
    return parts[0]
  return transport.to_int32(
    tf.concat(list(map(transport.to_float32, parts)), 0)
  )


def split(
  tensor: tf.Tensor, sizes: Sequence[int], axis: int
) -> list[tf.Tensor]:
  """Splits a tensor into parts of these sizes; does not copy a single one."""
  return [tensor] if len(sizes) == 1 else tf.split(tensor, sizes, axis)
