"""Fair timing on machines whose speed wanders: jobs take turns."""

import concurrent.futures
import os
import statistics
import time

import numpy as np
import tensorflow as tf
import tqdm


def in_turns(jobs, rounds, warm_up=1, settle=True):
  """Times jobs round by round, so that a slow moment meets all of them.

  Args:
    jobs: dict of name to (function without arguments, times it does its work).
    rounds: int.
    warm_up: int, rounds before that are not counted.
    settle: whether each job runs once for nothing first: threads of the job
      before may still be spinning, and its data are in the caches.

  Returns:
    Dict of name to a list of seconds for the work once, one a round.
  """
  seconds = {name: [] for name in jobs}
  for turn in tqdm.trange(warm_up + rounds, unit='round', disable=None):
    for name, (job, times) in jobs.items():
      if settle:
        job()
      start = time.perf_counter()
      job()
      if turn >= warm_up:
        seconds[name].append((time.perf_counter() - start) / times)
  return seconds


def ratio(seconds, name, base):
  """The median over the rounds of one job's time over another's."""
  return statistics.median(
    a / b for a, b in zip(seconds[name], seconds[base], strict=True)
  )


def memory_copy(num_elements, times):
  """A job that copies float32 from array to array, on all cores.

  Every core copies its share `times` times without waiting for the others: the
  fastest that memory allows.

  Args:
    num_elements: int.
    times: int.

  Returns:
    A function without arguments.
  """
  source = np.ones(num_elements, np.float32)
  target = np.zeros(num_elements, np.float32)
  cores = len(os.sched_getaffinity(0))
  pool = concurrent.futures.ThreadPoolExecutor(cores)
  borders = np.linspace(0, num_elements, cores + 1).astype(int)

  def share(core):
    part = slice(borders[core], borders[core + 1])
    for _ in range(times):
      np.copyto(target[part], source[part])

  return lambda: list(pool.map(share, range(cores)))


def repeated(work, times):
  """One traced function that does some work many times, one after the other.

  What a call from Python costs is then shared by all of them.

  Args:
    work: takes (int32 [], *arguments), returns a list of tensors.
    times: int.

  Returns:
    A function of the arguments that returns when all is done.
  """

  @tf.function
  def loop(*arguments):
    def body(i, total):
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

  traced = []

  def run(*arguments):
    # Traced here: TensorFlow takes the loops of many jobs for one that it
    # traces again and again, and warns of it.
    if not traced:
      traced.append(loop.get_concrete_function(*arguments))
    return traced[0](*arguments).numpy()

  return run
