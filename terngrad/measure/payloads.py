"""What one worker sends in a first step, and its decoding, for measurements.

All workers have the same gradients and send the same words.
"""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.reduce import gradients


class WorkerWords(NamedTuple):
  """The results of a worker in a step, before the mean is known.

  Attributes:
    probe: float32 [num_probes].
    carried: the gradients from `begin`.
    words: int32 [words] of each round.
    states: the states before the step, of this worker and the shared ones.
  """

  probe: tf.Tensor
  carried: gradients.BucketTensors
  words: list[tf.Tensor]
  states: list[list[tf.Tensor]]


def worker_step(
  codec: gradients.GradientCodec,
  seed: int,
  number: tf.Tensor | int,
  num_workers: int,
) -> gradients.WorkerStep:
  """Returns worker 0 in step `number`, int or int64 [], without probes."""
  step, worker = tf.cast(number, tf.int64), tf.constant(0)
  keys = codec.keys(seed, step, worker)
  return gradients.WorkerStep(seed, step, num_workers, worker, keys)


def first_states(codec: gradients.GradientCodec) -> list[list[tf.Tensor]]:
  """Returns the states of a worker before its first step, by bucket."""
  return [[s.first_value() for s in states] for states in codec.states()]


def send(
  codec: gradients.GradientCodec,
  values: Sequence[tf.Tensor],
  step: gradients.WorkerStep,
) -> WorkerWords:
  """Runs all rounds of one worker; the others send the same words.

  `values` are float32 gradients, and `step` is from `worker_step`.
  """
  first = first_states(codec)
  states: gradients.BucketTensors = first
  words: list[tf.Tensor] = []
  carried, probe = codec.begin(values, states, step)
  step = step._replace(local_probe=probe, shared_probe=probe)
  held = codec.carry(carried, step)
  for number in range(codec.num_rounds):
    rounds = receive(codec, words, step.num_workers)
    received = methods.received_by(step.worker, rounds)
    one, states = codec.send(number, held, states, received, step)
    words.append(one)
  return WorkerWords(probe, carried, words, first)


def tile(words: Sequence[tf.Tensor], num_workers: int) -> list[tf.Tensor]:
  """Returns int32 [workers, words] of each round, equal rows."""
  return [tf.tile(one[tf.newaxis], [num_workers, 1]) for one in words]


def receive(
  codec: gradients.GradientCodec,
  words: Sequence[tf.Tensor],
  num_workers: int,
) -> list[list[methods.Received]]:
  """Returns the received messages of the first rounds.

  Args:
    codec: the codec.
    words: of each round int32 [words], or [workers, words].
    num_workers: copies of the former.
  """
  rows = [
    one if one.shape.rank == 2 else tile([one], num_workers)[0] for one in words
  ]
  return [
    methods.payloads(codec.messages(number), [methods.Piece(0, [row])])
    for number, row in enumerate(rows)
  ]


def decode(
  codec: gradients.GradientCodec,
  words: Sequence[tf.Tensor],
  sent: WorkerWords,
  num_workers: int,
  step: gradients.WorkerStep | None = None,
) -> list[tf.Tensor]:
  """Decodes the mean.

  Args:
    codec: the codec.
    words: as for `receive`.
    sent: of one worker; all have its probe.
    num_workers: the number of workers.
    step: the step of `sent`; None for the first with the seed 1.
  """
  step = step or worker_step(codec, 1, 0, num_workers)
  step = step._replace(
    num_workers=num_workers, worker=None, keys=None, shared_probe=sent.probe
  )
  received = receive(codec, words, num_workers)
  return codec.decode(received, sent.states, step)[0]


def flatten_states(states: gradients.BucketTensors) -> list[tf.Tensor]:
  """Returns the states of all buckets as one list."""
  return [state for bucket in states for state in bucket]
