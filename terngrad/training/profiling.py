"""Profiles a range of steps with TensorFlow's profiler."""

import contextlib
from collections.abc import Callable
from collections.abc import Iterator

import tensorflow as tf


class Profiler:
  """Writes one profile of a range of steps, for TensorBoard."""

  def __init__(
    self, folder: str, steps: range, say: Callable[[str], None]
  ) -> None:
    """Starts nothing yet.

    Args:
      folder: the profile is written to its subfolder plugins/profile.
      steps: the steps to profile, counted from 1; may be empty. Steps that are
        not taken, before the start or after the end of a run, are left out.
      say: called with a log line when the profile is written.
    """
    self._folder = folder
    self._steps = steps
    self._say = say
    self._runs = False

  @contextlib.contextmanager
  def step(self, number: int) -> Iterator[None]:
    """Profiles the block if it is a step of the range."""
    if number not in self._steps:
      yield
      return
    if not self._runs:
      tf.profiler.experimental.start(self._folder)
      self._runs = True
    # TensorBoard shows the time of each of these.
    with tf.profiler.experimental.Trace('train', step_num=number, _r=1):
      yield
    if number == self._steps[-1]:
      self.close()

  def close(self) -> None:
    """Writes the profile if there is one that is not written yet."""
    if self._runs:
      self._runs = False
      tf.profiler.experimental.stop()
      self._say(f'wrote a profile to {self._folder}/plugins/profile')
