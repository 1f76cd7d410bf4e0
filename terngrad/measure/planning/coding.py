"""What a code costs on this machine, for `model.plan`."""

import math
import statistics

import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.codec import policy
from terngrad.codec.methods import registry
from terngrad.measure import timing
from terngrad.measure.planning import model
from terngrad.reduce import bucketing
from terngrad.reduce import gradients as gradients_lib
from terngrad.reduce import programs

_SAMPLE = (1024, 1024)


def measure(text, rounds=5):
  """Times a code on this machine.

  Args:
    text: as `--codec` spells it.
    rounds: to take the median of.

  Returns:
    A `model.Coding`.

  Raises:
    ValueError: the text names no method.
  """
  jobs = {}
  for workers in (2, 8):
    for name, job in zip(('send', 'receive'), _job(text, workers), strict=True):
      jobs[name, workers] = job, 1
  seconds = {
    name: statistics.median(values)
    for name, values in timing.in_turns(jobs, rounds).items()
  }
  size = math.prod(_SAMPLE)
  two, eight = seconds['receive', 2], seconds['receive', 8]
  return model.Coding(
    seconds['send', 2] / size, two / size, max(0.0, eight - two) / 6 / size
  )


def _job(text, workers):
  """(a job that sends, a job that receives) for a gradient of the sample."""
  spec = policy.VariableSpec('v', _SAMPLE)
  codec = bucketing.gradient_codec([spec], [registry.method(text, workers)])
  codec = bucketing.on_kernels(codec)
  part = programs.Programs(codec)
  gradient = tf.random.stateless_normal(_SAMPLE, [1, 2])
  states = [
    [state.first_value() for state in bucket.states] for bucket in codec.buckets
  ]
  of_all = gradients_lib.WorkerStep(
    tf.constant(1, tf.int64), tf.constant(0, tf.int64), workers
  )
  worker = tf.constant(0)

  @tf.function
  def send(received):
    step = of_all._replace(worker=worker)
    values, own = part.begin([gradient], [gradient], states, step)
    step = step._replace(own=own)
    carried = part.carry(values, step, stacked=False)
    shared = gradients_lib.agree(own[tf.newaxis])
    arrived = methods.received_by(worker, received)
    step = part.with_keys(step._replace(shared=shared))
    words = [
      part.send(number, carried, states, arrived[:number], step)[0]
      for number in range(codec.num_rounds)
    ]
    return words, shared

  @tf.function
  def receive(rows, shared):
    step = of_all._replace(shared=shared)
    return part.decode(_received(codec, rows), states, step)[0]

  rows = [
    tf.zeros([workers, codec.round_words(n)], tf.int32)
    for n in range(codec.num_rounds)
  ]
  words, shared = send(_received(codec, rows))
  rows = [tf.tile(own[tf.newaxis], [workers, 1]) for own in words]
  received = _received(codec, rows)
  return lambda: send(received)[1].numpy(), lambda: [
    mean.numpy() for mean in receive(rows, shared)
  ]


def _received(codec, rows):
  return [
    methods.payloads(codec.messages(number), [methods.Piece(0, [row])])
    for number, row in enumerate(rows)
  ]
