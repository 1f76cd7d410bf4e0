"""Speed of a method: the jobs to time."""

import functools
from collections.abc import Callable
from collections.abc import Sequence
from typing import ParamSpec
from typing import TypeVar

import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.codec.stages import tracing
from terngrad.measure import launches
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
  codec: gradients.GradientCodec,
  values: Sequence[tf.Tensor],
  repeat: launches.Repeat = timing.repeatable,
  device: str = '/CPU:0',
) -> dict[str, timing.Repeatable]:
  """Returns the works to time for a method, in its first step.

  Args:
    codec: of one bucket, for 8 workers.
    values: one worker's gradients, float32.
    repeat: makes a repeatable work from a function and its arguments.
    device: where parameters are updated. Call this function in its scope.

  Returns:
    'probe' (`begin`, with residuals if there are any), 'encode' (that, and the
    words of every round, and the new states of the worker), 'decode' (of one
    worker), 'decode_sum' (of 8 workers), 'finish' (the states that depend on
    the mean), 'update' (decodes the mean of 2 workers, then updates parameters
    with momentum) and 'fused_update' (the same in one kernel). Works that the
    method does not have are missing. The works of another number of workers
    than 8 are missing for methods with SCATTER messages.
  """
  programs = WorkerPrograms(codec)
  # The programs that are timed: operation by operation it would take an
  # accelerator longer than compiling.
  sent = programs.run(values)
  step = programs.probed_step(sent.probe)
  found = _worker_jobs(programs, values, repeat)
  scatters = any(
    message.combine == methods.SCATTER
    for number in range(codec.num_rounds)
    for message in codec.messages(number)
  )
  for name, count in {'decode': 1, 'decode_sum': WORKERS}.items():
    if count == WORKERS or not scatters:
      decode = _without_index(decode_words(codec, sent, count))
      words = payloads.tile(sent.words, count)
      found[name] = repeat(decode, *launches.as_floats(words))
  if codec.finishes:
    carried = codec.carry(sent.carried, step)
    finish = _program(codec, codec.finish)

    def finish_states(*means: tf.Tensor) -> list[tf.Tensor]:
      after = finish(carried, sent.states, list(means), step)
      return payloads.flatten_states(after)

    finish_again = _without_index(finish_states)
    found['finish'] = repeat(finish_again, *values)
  if scatters:
    return found
  return found | _updates(codec, values, sent, repeat, device)


def _without_index(
  function: Callable[..., list[tf.Tensor]],
) -> Callable[..., list[tf.Tensor]]:
  """Returns work for `timing.repeatable` that ignores the repetition."""

  def work(i: tf.Tensor, *arguments: tf.Tensor) -> list[tf.Tensor]:
    del i
    return function(*arguments)

  return work


class WorkerPrograms:
  """The programs of a worker in its first step, as training runs them.

  Attributes:
    codec: the gradient codec.
    begin: `codec.begin`, compiled if the codec is.
    send: takes the gradients from `begin`, the states and the step. Returns the
      words of each round as float32, with the bits of int32, and the states
      after them.
    step: the first step, without probes.
    states: the states before it.
  """

  def __init__(self, codec: gradients.GradientCodec) -> None:
    """Prepares the programs of a codec of one bucket, for 8 workers."""
    self.codec = codec
    self.begin = _program(codec, codec.begin)
    self.send = _program(codec, functools.partial(_send_all, codec))
    self.step = payloads.worker_step(codec, 1, 0, WORKERS)
    self.states = payloads.first_states(codec)

  def run(
    self, values: Sequence[tf.Tensor], probe: tf.Tensor | None = None
  ) -> payloads.WorkerWords:
    """Encodes float32 gradients; `probe` replaces the measured one."""
    carried, found = self.begin(list(values), self.states, self.step)
    probe = found if probe is None else probe
    results = self.send(carried, self.states, self.probed_step(probe))
    words = [
      tf.bitcast(one, tf.int32) for one in results[: self.codec.num_rounds]
    ]
    return payloads.WorkerWords(found, carried, words, self.states)

  def probed_step(self, probe: tf.Tensor) -> gradients.WorkerStep:
    """Returns the step after the workers agreed on a probe."""
    return self.step._replace(local_probe=probe, shared_probe=probe)


def _worker_jobs(
  programs: WorkerPrograms, values: Sequence[tf.Tensor], repeat: launches.Repeat
) -> dict[str, timing.Repeatable]:
  """Returns the works of a worker before it receives the mean."""
  first, before = programs.states, programs.step

  def probe(i: tf.Tensor, *values: tf.Tensor) -> list[tf.Tensor]:
    del i
    return [programs.begin(list(values), first, before)[1]]

  def encode(i: tf.Tensor, *values: tf.Tensor) -> list[tf.Tensor]:
    # Other random numbers in each repetition.
    key = tf.stack([tf.constant(0), i, tf.constant(0)])
    now = before._replace(keys=before.keys + tf.cast(key, tf.uint32))
    carried, found = programs.begin(list(values), first, now)
    now = now._replace(local_probe=found, shared_probe=found)
    return programs.send(carried, first, now)

  return {'probe': repeat(probe, *values), 'encode': repeat(encode, *values)}


def _send_all(
  codec: gradients.GradientCodec,
  carried: gradients.BucketTensors,
  states: gradients.BucketTensors,
  step: gradients.WorkerStep,
) -> list[tf.Tensor]:
  """Returns the words of all rounds, as float32, and the states after them."""
  held, words = codec.carry(carried, step), list[tf.Tensor]()
  for number in range(codec.num_rounds):
    rounds = payloads.receive(codec, words, step.num_workers)
    received = methods.received_by(step.worker, rounds)
    one, states = codec.send(number, held, states, received, step)
    words.append(one)
  return [*launches.as_floats(words), *payloads.flatten_states(states)]


def _program(
  codec: gradients.GradientCodec, function: Callable[_P, _T]
) -> Callable[_P, _T]:
  """Returns the function as training runs it: compiled if the codec is."""
  if not codec.compiled:
    return function
  # TensorFlow counts retraces by source line, over all codecs, and warns of too
  # many. It counts each partial separately.
  return tracing.compiled(functools.partial(function))


def decode_words(
  codec: gradients.GradientCodec, sent: payloads.WorkerWords, num_workers: int
) -> Callable[..., list[tf.Tensor]]:
  """Returns a function from words to means.

  It takes the words of each round as float32 [n, w] with the bits of int32.
  """

  def decode(*words: tf.Tensor) -> list[tf.Tensor]:
    integers = [tf.bitcast(one, tf.int32) for one in words]
    return payloads.decode(codec, integers, sent, num_workers)

  return _program(codec, decode)


def _updates(
  codec: gradients.GradientCodec,
  values: Sequence[tf.Tensor],
  sent: payloads.WorkerWords,
  repeat: launches.Repeat,
  device: str,
) -> dict[str, timing.Repeatable]:
  """Returns works that decode two workers' words and update parameters."""
  optimizer = optimizers.Momentum()
  parameters, velocities = (
    tuple(tf.Variable(tf.zeros_like(v), trainable=False) for v in values)
    for _ in range(2)
  )
  slots = tuple({optimizers.MOMENTUM: v} for v in velocities)
  replica = replicas.Replica(device, parameters, (), slots, ())
  update = updates.Update(replica, optimizer, None)
  words = payloads.tile(sent.words, 2)
  floats = launches.as_floats(words)
  rates = tf.constant(1e-3), tf.constant(0.0)
  decode = decode_words(codec, sent, 2)

  def decode_and_update(i: tf.Tensor) -> list[tf.Tensor]:
    update(decode(*floats), None, (tf.cast(i, tf.int64), *rates))
    return [rates[0]]

  found = {'update': repeat(decode_and_update)}
  digits = codec.buckets[0].method.digits
  if not digits:
    return found

  def fused_update(i: tf.Tensor) -> list[tf.Tensor]:
    del i
    tensors = fused_updates.update_tensors(replica, optimizer)
    piece = methods.Piece(0, words)
    ops.fused_update(digits, piece, sent.probe, 0.5, tensors, rates)
    return [rates[0]]

  return found | {'fused_update': repeat(fused_update)}
