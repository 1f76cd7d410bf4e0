"""Words of all codes, compared with those of the CPU."""

import concurrent.futures
import functools
import os
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from terngrad.codec.methods import registry
from terngrad.measure import codecs
from terngrad.measure import gradient_codecs
from terngrad.measure import launches
from terngrad.measure import payloads
from terngrad.measure.gpu import figures
from terngrad.measure.gpu import parts
from terngrad.reduce import bucketing
from terngrad.reduce import gradients as gradient_lib

_CPU = '/CPU:0'
# A matrix of odd size, a vector, and less than a word.
_SHAPES = [(1021, 1027), (4099,), (7,)]
_FEW = [(31, 17), (7,)]
# Programs are compiled in as many threads.
_MOST_THREADS = 8
# Its words are float32 sums, and devices add in different orders.
_SUMS = ('powersgd',)


class Differences(NamedTuple):
  """Differences between two devices.

  Attributes:
    words: words that differ.
    of_words: number of words.
    floats: decoded elements that differ.
    probes: largest relative difference of a probe.
  """

  words: int
  of_words: int
  floats: int
  probes: float


def check(settings: parts.CheckSettings, report: figures.Report) -> None:
  """Compares all codes; reports each as soon as it is compared."""
  shapes = _FEW if settings.small else _SHAPES
  # Built here: the first use of a code imports modules, which threads must not
  # do at the same time.
  built = {
    text: gradient_codecs.build(text, shapes, codecs.WORKERS)
    for text in registry.list_kinds()
  }
  compare = functools.partial(differences, settings.device)
  threads = min(_MOST_THREADS, len(os.sched_getaffinity(0)))
  with concurrent.futures.ThreadPoolExecutor(threads) as pool:
    for text, found in zip(
      built, pool.map(compare, built.values()), strict=True
    ):
      limit = None if text in _SUMS else 0.0
      unit = f'of {found.of_words:,} words differ'
      report(figures.Figure(text, found.words, unit, limit))
      if found.floats:
        name = f'{text}, decoded'
        report(figures.Figure(name, found.floats, 'elements differ', limit))
      if found.probes:
        name = f'{text}, probe'
        report(figures.Figure(name, found.probes, 'relative difference', 1e-5))


def differences(device: str, built: gradient_lib.GradientCodec) -> Differences:
  """Compares the first step of a codec on a device with that of the CPU.

  Both encode Gaussian gradients with the CPU's probe, and decode the CPU's
  words. The CPU uses native kernels if there are any.

  Args:
    device: name of the device.
    built: the codec, of one bucket, without kernels.
  """
  shapes = built.buckets[0].shapes
  rng = np.random.default_rng(0)
  gradients = [rng.standard_normal(shape, np.float32) for shape in shapes]
  with tf.device(_CPU):
    expected, means = _coded(bucketing.on_kernels(built), gradients)
  with tf.device(device):
    found, decoded = _coded(bucketing.on_gpus(built), gradients, expected)
  return Differences(
    words=_count(expected.words, found.words),
    of_words=sum(int(tf.size(one)) for one in expected.words),
    floats=_count(means, decoded),
    probes=_distance(expected.probe.numpy(), found.probe.numpy()),
  )


def _coded(
  codec: gradient_lib.GradientCodec,
  gradients: list[np.ndarray],
  given: payloads.WorkerWords | None = None,
) -> tuple[payloads.WorkerWords, list[tf.Tensor]]:
  """Encodes with the probe, and decodes the words, of `given` if any."""
  values = [tf.constant(gradient) for gradient in gradients]
  programs = codecs.WorkerPrograms(codec)
  sent = programs.run(values, given.probe if given else None)
  given = given or sent
  decode = codecs.decode_words(codec, given, 1)
  words = payloads.tile(given.words, 1)
  return sent, decode(*launches.as_floats(words))


def _count(some: list[tf.Tensor], others: list[tf.Tensor]) -> int:
  """Counts elements with different bits."""
  return sum(
    int(np.sum(a.numpy().view(np.uint32) != b.numpy().view(np.uint32)))
    for a, b in zip(some, others, strict=True)
  )


def _distance(some: np.ndarray, others: np.ndarray) -> float:
  """Returns the largest relative difference of two vectors."""
  scale = np.maximum(np.abs(some), np.finfo(np.float32).tiny)
  return float(np.max(np.abs(some - others) / scale, initial=0.0))
