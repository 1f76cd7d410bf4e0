"""Measures the cost of a codec on this machine, for `model.plan`."""

import math
import statistics

import tensorflow as tf

from terngrad.measure import gradient_codecs
from terngrad.measure import timing
from terngrad.measure.planning import model
from terngrad.reduce import bucketing
from terngrad.reduce import halves

_SAMPLE = (1024, 1024)


def measure(text: str, rounds: int = 5) -> model.Coding:
  """Times a codec on this machine.

  Args:
    text: codec in the syntax of `--codec`.
    rounds: rounds of timing; the median is used.

  Raises:
    ValueError: the text names no method.
  """
  jobs = {}
  for workers in (2, 8):
    send, receive = _jobs(text, workers)
    jobs['send', workers], jobs['receive', workers] = (send, 1), (receive, 1)
  size = math.prod(_SAMPLE)
  seconds = {
    name: statistics.median(values) / size
    for name, values in timing.alternate(jobs, rounds).items()
  }
  two, eight = seconds['receive', 2], seconds['receive', 8]
  return model.Coding(seconds['send', 2], two, max(0.0, eight - two) / 6)


def _jobs(text: str, workers: int) -> tuple[timing.Job, timing.Job]:
  """Returns jobs that send and that receive a gradient of shape `_SAMPLE`."""
  codec = gradient_codecs.build(text, [_SAMPLE], workers)
  codec = bucketing.on_kernels(codec)
  both = halves.Halves(codec, workers)
  gradient = tf.random.stateless_normal(_SAMPLE, [1, 2])
  zeros = [
    tf.zeros([workers, codec.round_words(n)], tf.int32)
    for n in range(codec.num_rounds)
  ]
  words, shared = both.send([gradient], zeros)
  rows = [tf.tile(row[tf.newaxis], [workers, 1]) for row in words]
  return lambda: both.send([gradient], rows)[1].numpy(), lambda: [
    mean.numpy() for mean in both.receive(rows, shared)
  ]
