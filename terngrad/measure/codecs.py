"""Speed of a method: the jobs to time."""

import functools
from collections.abc import Callable
from collections.abc import Sequence
from typing import ParamSpec
from typing import TypeVar

import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.measure import payloads
from terngrad.measure import timing
from terngrad.native import ops
from terngrad.reduce import gradients
from terngrad.step import fused_updates
from terngrad.step import optimizers
from terngrad.step import replicas
from terngrad.step import updates

WORKERS = 8
_P = ParamSpec('_P')
_T = TypeVar('_T')


def jobs(
  codec: gradients.GradientCodec, values: Sequence[tf.Tensor]
) -> dict[str, timing.Repeatable]:
  """Returns the works to time for a method, in its first step.

  Args:
    codec: of one bucket, for 8 workers.
    values: one worker's gradients, float32.

  Returns:
    'probe' (`begin`, with residuals if there are any), 'encode' (that, and the
    words of every round, and the new states of the worker), 'decode' (of one
    worker), 'decode_sum' (of 8 workers), 'finish' (the states that depend on
    the mean), 'update' (decodes the mean of 2 workers, then updates parameters
    with momentum) and 'fused_update' (the same in one kernel). Works that the
    method does not have are missing. The works of another number of workers
    than 8 are missing for methods with SCATTER messages.
  """
  worker_step = payloads.worker_step(codec, 1, 0, WORKERS)
  sent = payloads.send(codec, values, worker_step)
  step = worker_step._replace(local_probe=sent.probe, shared_probe=sent.probe)
  found = _worker_jobs(codec, values, sent, step)
  scatters = any(
    message.combine == methods.SCATTER
    for number in range(codec.num_rounds)
    for message in codec.messages(number)
  )
  for name, count in {'decode': 1, 'decode_sum': WORKERS}.items():
    if count == WORKERS or not scatters:
      decode = _without_index(_decode(codec, sent, count))
      words = payloads.tile(sent.words, count)
      found[name] = timing.repeatable(decode, *words)
  if codec.finishes:
    carried = codec.carry(sent.carried, step)
    finish = _program(codec, codec.finish)

    def finish_states(*means: tf.Tensor) -> list[tf.Tensor]:
      after = finish(carried, sent.states, list(means), step)
      return payloads.flatten_states(after)

    finish_again = _without_index(finish_states)
    found['finish'] = timing.repeatable(finish_again, *values)
  if scatters:
    return found
  return found | _updates(codec, values, sent)


def _without_index(
  function: Callable[..., list[tf.Tensor]],
) -> Callable[..., list[tf.Tensor]]:
  """Returns work for `timing.repeatable` that ignores the repetition."""

  def work(i: tf.Tensor, *arguments: tf.Tensor) -> list[tf.Tensor]:
    del i
    return function(*arguments)

  return work


def _worker_jobs(
  codec: gradients.GradientCodec,
  values: Sequence[tf.Tensor],
  sent: payloads.WorkerWords,
  step: gradients.WorkerStep,
) -> dict[str, timing.Repeatable]:
  """Returns the works of a worker before it receives the mean."""
  begin = _program(codec, codec.begin)
  send = _program(codec, functools.partial(_send_all, codec))
  before = step._replace(local_probe=None, shared_probe=None)

  def probe(i: tf.Tensor, *values: tf.Tensor) -> list[tf.Tensor]:
    del i
    return [begin(list(values), sent.states, before)[1]]

  def encode(i: tf.Tensor, *values: tf.Tensor) -> list[tf.Tensor]:
    # Other random numbers in each repetition.
    key = tf.stack([tf.constant(0), i, tf.constant(0)])
    now = step._replace(keys=step.keys + tf.cast(key, tf.uint32))
    started = now._replace(local_probe=None, shared_probe=None)
    carried, found = begin(list(values), sent.states, started)
    now = now._replace(local_probe=found, shared_probe=found)
    return send(carried, sent, now)

  return {
    'probe': timing.repeatable(probe, *values),
    'encode': timing.repeatable(encode, *values),
  }


def _send_all(
  codec: gradients.GradientCodec,
  carried: gradients.BucketTensors,
  sent: payloads.WorkerWords,
  step: gradients.WorkerStep,
) -> list[tf.Tensor]:
  """Returns the words of all rounds, and the states after them."""
  held, words = codec.carry(carried, step), list[tf.Tensor]()
  states: gradients.BucketTensors = sent.states
  for number in range(codec.num_rounds):
    rounds = payloads.receive(codec, sent.words[:number], step.num_workers)
    received = methods.received_by(step.worker, rounds)
    one, states = codec.send(number, held, states, received, step)
    words.append(one)
  return [*words, *payloads.flatten_states(states)]


def _program(
  codec: gradients.GradientCodec, function: Callable[_P, _T]
) -> Callable[_P, _T]:
  """Returns the function as training runs it: compiled if the codec is."""
  if not codec.compiled:
    return function
  # TensorFlow counts retraces by source line, over all codecs, and warns of too
  # many. It counts each partial separately.
  return tf.function(functools.partial(function), jit_compile=True)


def _decode(
  codec: gradients.GradientCodec, sent: payloads.WorkerWords, num_workers: int
) -> Callable[..., list[tf.Tensor]]:
  """Returns a function from the words of each round, int32 [n, w], to means."""

  def decode(*words: tf.Tensor) -> list[tf.Tensor]:
    return payloads.decode(codec, words, sent, num_workers)

  return _program(codec, decode)


def _updates(
  codec: gradients.GradientCodec,
  values: Sequence[tf.Tensor],
  sent: payloads.WorkerWords,
) -> dict[str, timing.Repeatable]:
  """Returns works that decode two workers' words and update parameters."""
  optimizer = optimizers.Momentum()
  parameters, velocities = (
    tuple(tf.Variable(tf.zeros_like(v), trainable=False) for v in values)
    for _ in range(2)
  )
  slots = tuple({optimizers.MOMENTUM: v} for v in velocities)
  replica = replicas.Replica('/CPU:0', parameters, (), slots, ())
  update = updates.Update(replica, optimizer, None)
  words = payloads.tile(sent.words, 2)
  rates = tf.constant(1e-3), tf.constant(0.0)
  decode = _decode(codec, sent, 2)

  def decode_and_update(i: tf.Tensor) -> list[tf.Tensor]:
    update(decode(*words), [], (tf.cast(i, tf.int64), *rates))
    return [rates[0]]

  found = {'update': timing.repeatable(decode_and_update)}
  digits = codec.buckets[0].method.digits
  if not digits:
    return found

  def fused_update(i: tf.Tensor) -> list[tf.Tensor]:
    del i
    tensors = fused_updates.update_tensors(replica, optimizer)
    piece = methods.Piece(0, words)
    ops.fused_update(digits, piece, sent.probe, 0.5, tensors, rates)
    return [rates[0]]

  return found | {'fused_update': timing.repeatable(fused_update)}
