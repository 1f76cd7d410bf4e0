"""Timing that is fair on machines of varying speed: jobs alternate."""

import concurrent.futures
import os
import statistics
import time
from collections.abc import Callable
from collections.abc import Hashable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import tensorflow as tf
import tqdm

from terngrad.codec.stages import tracing

_K = TypeVar('_K', bound=Hashable)
# The return value of a job is ignored.
Job = Callable[[], object]
Repeatable = Callable[[int], object]  # of the number of repetitions


def alternate(
  jobs: Mapping[_K, tuple[Job, int]],
  rounds: int,
  warm_up: int = 1,
  in_a_row: int = 1,
) -> dict[_K, list[float]]:
  """Times jobs in rounds, so that a slow period affects all of them.

  Args:
    jobs: by name, each job and the number of repetitions of its work.
    rounds: number of timed rounds.
    warm_up: number of untimed rounds before these, with one call of each job.
    in_a_row: number of calls of a job in a round that are timed together.

  Returns:
    By name, the seconds per repetition, one value per round.
  """
  seconds: dict[_K, list[float]] = {name: [] for name in jobs}
  for number in tqdm.trange(warm_up + rounds, unit='round', disable=None):
    for name, (job, times) in jobs.items():
      if number < warm_up:
        job()
      else:
        seconds[name].append(time_once(job, in_a_row=in_a_row) / times)
  return seconds


def time_once(job: Job, settle: bool = True, in_a_row: int = 1) -> float:
  """Returns the seconds of one call of a job.

  Args:
    job: the job.
    settle: True runs it once untimed before, since threads of the previous job
      may still be spinning and its data fill the caches.
    in_a_row: number of calls; their mean is returned.
  """
  if settle:
    job()
  start = time.perf_counter()
  for _ in range(in_a_row):
    job()
  return (time.perf_counter() - start) / in_a_row


def ratio(seconds: Mapping[_K, Sequence[float]], name: _K, base: _K) -> float:
  """Returns the median over the rounds of the ratio of two jobs' times."""
  return statistics.median(
    a / b for a, b in zip(seconds[name], seconds[base], strict=True)
  )


def memory_copy(num_elements: int, times: int) -> Job:
  """Returns a job that copies float32 arrays on all cores.

  Every core copies its part `times` times without waiting for the others. This
  is the highest speed that memory allows.
  """
  cores = len(os.sched_getaffinity(0))
  sources = np.array_split(np.ones(num_elements, np.float32), cores)
  targets = np.array_split(np.zeros(num_elements, np.float32), cores)
  pool = concurrent.futures.ThreadPoolExecutor(cores)

  def copy(source: np.ndarray, target: np.ndarray) -> None:
    for _ in range(times):
      np.copyto(target, source)

  return lambda: list(pool.map(copy, sources, targets))


def repeatable(
  work: Callable[..., Sequence[tf.Tensor]], *arguments: tf.Tensor
) -> Repeatable:
  """Returns a traced function that repeats some work in a loop.

  The cost of a call from Python is thus divided over all repetitions. The
  function takes their number.

  Args:
    work: takes the index of the repetition, int32 [], and the arguments.
    *arguments: arguments of `work`.
  """

  @tracing.function
  def loop(times: tf.Tensor, *arguments: tf.Tensor) -> tf.Tensor:
    def body(i: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
      results = work(i, *arguments)
      # Use one element of each result, so that TensorFlow prunes no result.
      used = [r for r in results if r.shape.num_elements() != 0]
      ends = [tf.reshape(r, [-1])[-1] for r in used]
      return i + 1, total + tf.add_n([tf.cast(e, tf.float32) for e in ends])

    return tf.while_loop(
      lambda i, _: i < times,
      body,
      (tf.constant(0), tf.constant(0.0)),
      parallel_iterations=1,
    )[1]

  # Trace here: TensorFlow mistakes the loops of many jobs for one function that
  # is traced repeatedly, and warns.
  traced = loop.get_concrete_function(tf.constant(0), *arguments)
  return lambda times: traced(tf.constant(times), *arguments).numpy()
