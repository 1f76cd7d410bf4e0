"""Fair timing on machines whose speed varies: jobs take turns."""

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

_K = TypeVar('_K', bound=Hashable)
# What a job returns is dropped.
Job = Callable[[], object]


def in_turns(
  jobs: Mapping[_K, tuple[Job, int]],
  rounds: int,
  warm_up: int = 1,
  settle: bool = True,
) -> dict[_K, list[float]]:
  """Times jobs round by round, so that a slow moment meets all of them.

  Args:
    jobs: by name, each with the number of times that it does its work.
    rounds: that are timed.
    warm_up: rounds before these, which are not counted.
    settle: whether each job runs once for nothing first: threads of the job
      before may still be spinning, and its data are in the caches.

  Returns:
    For each name the seconds for the work once, one a round.
  """
  seconds: dict[_K, list[float]] = {name: [] for name in jobs}
  for turn in tqdm.trange(warm_up + rounds, unit='round', disable=None):
    for name, (job, times) in jobs.items():
      if settle:
        job()
      start = time.perf_counter()
      job()
      if turn >= warm_up:
        seconds[name].append((time.perf_counter() - start) / times)
  return seconds


def ratio(seconds: Mapping[_K, Sequence[float]], name: _K, base: _K) -> float:
  """The median over the rounds of one job's time over another's."""
  return statistics.median(
    a / b for a, b in zip(seconds[name], seconds[base], strict=True)
  )


def memory_copy(num_elements: int, times: int) -> Job:
  """A job that copies float32 from array to array, on all cores.

  Every core copies its share `times` times without waiting for the others: the
  fastest that memory allows.
  """
  cores = len(os.sched_getaffinity(0))
  sources = np.array_split(np.ones(num_elements, np.float32), cores)
  targets = np.array_split(np.zeros(num_elements, np.float32), cores)
  pool = concurrent.futures.ThreadPoolExecutor(cores)

  def copy(source: np.ndarray, target: np.ndarray) -> None:
    for _ in range(times):
      np.copyto(target, source)

  return lambda: list(pool.map(copy, sources, targets))


def repeated(
  work: Callable[..., Sequence[tf.Tensor]], times: int, *arguments: tf.Tensor
) -> Job:
  """A job of one traced function that does some work many times in a row.

  All of them share what a call from Python costs.

  Args:
    work: takes the number of the time, int32 [], and the arguments.
    times: how often the work is done.
    *arguments: of the work.
  """

  @tf.function
  def loop(*arguments: tf.Tensor) -> tf.Tensor:
    def body(i: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
      results = work(i, *arguments)
      # One number of each result, so that nothing is left out.
      ends = [tf.reshape(r, [-1])[-1] for r in results if r.shape != (0,)]
      return i + 1, total + tf.add_n([tf.cast(e, tf.float32) for e in ends])

    return tf.while_loop(
      lambda i, _: i < times,
      body,
      (tf.constant(0), tf.constant(0.0)),
      parallel_iterations=1,
    )[1]

  # Traced here: TensorFlow takes the loops of many jobs for one that it traces
  # again and again, and warns of it.
  traced = loop.get_concrete_function(*arguments)
  return lambda: traced(*arguments).numpy()
