"""What a code costs on this machine, for `model.plan`."""

import math
import statistics

import tensorflow as tf

from terngrad.codec import policy
from terngrad.codec.methods import registry
from terngrad.measure import timing
from terngrad.measure.planning import model
from terngrad.reduce import bucketing
from terngrad.reduce import halves

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
  both = halves.Halves(codec, workers)
  gradient = tf.random.stateless_normal(_SAMPLE, [1, 2])
  zeros = [
    tf.zeros([workers, codec.round_words(n)], tf.int32)
    for n in range(codec.num_rounds)
  ]
  words, shared = both.send([gradient], zeros)
  rows = [tf.tile(own[tf.newaxis], [workers, 1]) for own in words]
  return lambda: both.send([gradient], rows)[1].numpy(), lambda: [
    mean.numpy() for mean in both.receive(rows, shared)
  ]
