"""Measures the costs of codecs on this machine, for `model.plan`.

All codes take a turn in each round, so that a slow period affects all of them.
The gradient is one matrix of a million elements: encoding and decoding take
time in proportion to the elements, so larger models need no larger sample.
"""

import math
import time
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from slim.datasets.records import progress
from terngrad.measure import gradient_codecs
from terngrad.measure import timing
from terngrad.measure.planning import model
from terngrad.reduce import bucketing
from terngrad.reduce import halves

_SAMPLE = (1024, 1024)
_SEND, _RECEIVE, _EIGHT = 'send', 'receive', 'receive 8'
# Rounds that are timed however long they take.
FEWEST_ROUNDS = 3
_now = time.perf_counter


def measure(text: str, rounds: int = 5) -> model.Coding:
  """Times one codec on this machine; see `measure_all`."""
  return measure_all([text], rounds)[text]


def measure_all(
  texts: Sequence[str], rounds: int, most_seconds: float = math.inf
) -> dict[str, model.Coding]:
  """Times codecs on this machine in interleaved rounds.

  Shows a bar on terminals; otherwise it writes a line every 30 seconds.

  Args:
    texts: codecs in the syntax of `--codec`.
    rounds: rounds of timing after an untimed one, which also compiles.
    most_seconds: no round begins after this time, except the first three.

  Returns:
    The lower quartiles over the rounds, by text: other programs only make a
    round slower.

  Raises:
    ValueError: a text names no method.
  """
  end = _now() + most_seconds
  total = len(texts) * (1 + rounds)
  with progress.Progress(total=total, desc='codes', unit='turn') as bar:
    jobs: dict[str, Mapping[str, timing.Job]] = {}
    for text in texts:
      jobs[text] = _jobs(text)
      _times(jobs[text].values())
      bar.update()
    samples: dict[str, list[list[float]]] = {text: [] for text in texts}
    for number in range(rounds):
      if number >= FEWEST_ROUNDS and _now() >= end:
        break
      for text in texts:
        samples[text].append(_times(jobs[text].values()))
        bar.update()
  return {text: _cost(jobs[text], samples[text]) for text in texts}


def _times(jobs: Iterable[timing.Job]) -> list[float]:
  """Returns the seconds of one call of each job."""
  return [timing.time_once(job) for job in jobs]


def _cost(
  names: Iterable[str], rounds: Sequence[Sequence[float]]
) -> model.Coding:
  """Returns the cost of a codec from the seconds of each round by job."""
  values = dict(zip(names, np.array(rounds).T, strict=True))
  size = math.prod(_SAMPLE)
  send, two, eight = (
    float(np.quantile(values[name], 0.25)) / size
    for name in (_SEND, _RECEIVE, _EIGHT)
  )
  low, high = np.quantile(values[_SEND] + values[_RECEIVE], (0.25, 0.75))
  return model.Coding(
    send, two, max(0.0, eight - two) / 6, float((high - low) / 2 / low)
  )


def _jobs(text: str) -> Mapping[str, timing.Job]:
  """Returns jobs that send, and that receive from two and eight workers."""
  gradient = tf.random.stateless_normal(_SAMPLE, [1, 2])
  found: dict[str, timing.Job] = {}
  sent: list[tf.Tensor] = []
  shared = tf.zeros([0])
  for workers, name in ((2, _RECEIVE), (8, _EIGHT)):
    codec = gradient_codecs.build(text, [_SAMPLE], workers)
    codec = bucketing.on_kernels(codec)
    both = halves.Halves(codec, workers)
    sizes = [codec.round_words(n) for n in range(codec.num_rounds)]
    # Encoding is compiled once, unless the words depend on the workers.
    if [row.shape[0] for row in sent] != sizes:
      zeros = [tf.zeros([workers, words]) for words in sizes]
      sent, shared = _trace(both.send, [gradient], zeros)()
    rows = [tf.tile(row[tf.newaxis], [workers, 1]) for row in sent]
    if workers == 2:
      found[_SEND] = _sending(_trace(both.send, [gradient], rows))
    found[name] = _receiving(_trace(both.receive, rows, shared))
  return found


def _sending(encode: Callable[[], Any]) -> timing.Job:
  """Returns a job that encodes and waits for the agreed probe."""
  return lambda: encode()[1].numpy()


def _receiving(decode: Callable[[], Any]) -> timing.Job:
  """Returns a job that decodes and waits for the means."""
  return lambda: [mean.numpy() for mean in decode()]


def _trace(function: Any, *arguments: Any) -> Callable[[], Any]:
  """Traces a `tf.function`; returns a call of it with these arguments.

  TensorFlow mistakes the functions of many codecs for one that is traced
  repeatedly, and warns, unless they are traced explicitly.
  """
  traced = function.get_concrete_function(*arguments)
  return lambda: traced(*arguments)
