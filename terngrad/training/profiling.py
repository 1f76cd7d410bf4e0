"""Profiles a range of steps with TensorFlow's profiler."""

import contextlib
import time
from collections.abc import Callable
from collections.abc import Iterator

import tensorflow as tf


class Profiler:
  """Writes one profile of a range of steps, for TensorBoard."""

  def __init__(
    self,
    folder: str,
    steps: range,
    say: Callable[[str], None],
    exclude: Callable[[float], None],
  ) -> None:
    """Starts nothing yet.

    Args:
      folder: the profile is written to its subfolder plugins/profile.
      steps: the steps to profile, counted from 1; may be empty. Steps that are
        not taken, before the start or after the end of a run, are left out.
      say: called with a log line when the profile is written, or cannot be.
      exclude: called with the seconds that the profiler itself took.
    """
    self._folder = folder
    self._steps = steps
    self._say = say
    self._exclude = exclude
    self._runs = False

  @contextlib.contextmanager
  def step(self, number: int) -> Iterator[None]:
    """Profiles the block if it is a step of the range."""
    if number not in self._steps:
      yield
      return
    last = self._steps[-1]
    if not self._runs:
      self._runs = self._try(
        lambda: tf.profiler.experimental.start(self._folder)
      )
    # TensorBoard shows the time of each of these.
    with tf.profiler.experimental.Trace('train', step_num=number, _r=1):
      yield
    if self._runs and number == last:
      self.close()

  def close(self) -> None:
    """Writes the profile if there is one that is not written yet."""
    if not self._runs:
      if self._steps:
        self._say(
          '--profile_steps: no profile, because none of the steps '
          f'{self._steps[0]} to {self._steps[-1]} was taken'
        )
      return
    self._runs = False
    self._steps = range(0)
    if self._try(tf.profiler.experimental.stop):
      self._say(f'wrote a profile to {self._folder}/plugins/profile')

  def _try(self, act: Callable[[], None]) -> bool:
    """Returns whether the profiler obeyed; training goes on without it."""
    started = time.perf_counter()
    try:
      act()
    except (OSError, tf.errors.OpError) as error:
      self._steps = range(0)
      self._say(
        f'--profile_steps: expected a profile in {self._folder}, received: '
        f'{error}. Training goes on without one.'
      )
      return False
    finally:
      self._exclude(time.perf_counter() - started)
    return True
