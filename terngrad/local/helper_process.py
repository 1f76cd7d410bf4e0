"""Starts a helper process, and ends it.

It is a new Python process, not a fork: the training process may have threads
and devices of any framework. It has no TensorFlow of the training process, so
it can join other helpers, and a new one can do so again after a loss.
"""

import contextlib
import os
import socket
import subprocess
import sys
import weakref
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from terngrad import errors
from terngrad.local import channel as channels

# Seconds that a helper has to end by itself: TensorFlow closes connections.
_SECONDS = 10.0
# Those whose pipe and connection a forked process closes.
_running: 'weakref.WeakSet[HelperProcess]' = weakref.WeakSet()


class HelperLost(Exception):
  """A helper ended, or it lost another one; a new helper can continue."""


class HelpersFinished(Exception):
  """Other processes have finished their training.

  Attributes:
    ranks: their indices.
  """

  def __init__(self, ranks: Sequence[int]) -> None:
    """Takes the indices of the processes."""
    super().__init__(f'processes {list(ranks)} have finished')
    self.ranks = ranks


class HelperProcess:
  """A running helper.

  It ends with this object, at the latest with this process.
  """

  def __init__(self, start: str, descriptors: Sequence[int]) -> None:
    """Starts the process; `receive` returns its first message.

    Args:
      start: the result of `options.encode`.
      descriptors: of the files that the helper opens.
    """
    ours, theirs = socket.socketpair()
    reader, self._writer = os.pipe()
    self._channel = channels.Channel(ours)
    _running.add(self)
    passed = [theirs.fileno(), reader, *descriptors]
    words = ['-m', 'terngrad.local.helper', *map(str, passed)]
    self._process = subprocess.Popen(
      [sys.executable, *words],
      stdin=subprocess.DEVNULL,
      stdout=subprocess.DEVNULL,
      pass_fds=passed,
      env=_environment(os.environ),
    )
    theirs.close()
    os.close(reader)
    self._end = weakref.finalize(
      self, _end, os.getpid(), self._process, self._channel, self._writer
    )
    with contextlib.suppress(OSError):
      self._channel.write(start=start)

  def wait_until_joined(self, seconds: float | None) -> None:
    """Waits until the helper has joined all others.

    Args:
      seconds: limit; None for no limit.

    Raises:
      HelperLost: another process did not join in time, or as in `receive`, as
        well as the other errors.
    """
    if seconds is not None and not self._channel.wait(seconds):
      raise HelperLost(f'some process did not join within {seconds:g} seconds')
    self.receive()

  def write(self, **message: Any) -> None:
    """Sends a request.

    Raises:
      HelperLost: the helper has ended.
    """
    try:
      self._channel.write(**message)
    except OSError as error:
      raise HelperLost('a helper process has ended') from error

  def receive(self) -> dict[str, Any]:
    """Waits for a message.

    Raises:
      HelperLost: the helper ended or lost another one.
      HelpersFinished: other processes have finished their training.
      errors.ConfigError: the helper refused an option.
      errors.TrainingError: the helper failed.
    """
    try:
      message = self._channel.receive()
    except EOFError as error:
      code = self._process.wait()
      raise HelperLost(
        f'the helper process of this process ended with code {code}'
      ) from error
    if 'lost' in message:
      raise HelperLost(message['lost'])
    if 'finished' in message:
      raise HelpersFinished(message['finished'])
    if 'refused' in message:
      raise errors.ConfigError(message['refused'])
    if 'failed' in message:
      raise errors.TrainingError(
        'Local steps: expected an answer of the helper process, received '
        f'{message["failed"]}. Its messages are above; start the program again '
        'from the last checkpoint.'
      )
    return message

  def end(self) -> None:
    """Ends the helper; does nothing if it was ended before."""
    _running.discard(self)
    self._end()

  def leave_to_parent(self) -> None:
    """Lets the helper end with the process that started it, after a fork."""
    os.close(self._writer)
    self._channel.abandon()


def _environment(environment: Mapping[str, str]) -> dict[str, str]:
  """Returns the environment of a helper, which uses TensorFlow on the CPU."""
  found = {k: v for k, v in environment.items() if k != 'TF_CONFIG'}
  return found | {'KERAS_BACKEND': 'tensorflow', 'CUDA_VISIBLE_DEVICES': '-1'}


def _end(
  owner: int,
  process: 'subprocess.Popen[bytes]',
  channel: channels.Channel,
  writer: int,
) -> None:
  """Closes the connection, and kills a helper that does not end by itself."""
  if os.getpid() != owner:
    # In a forked process.
    return
  channel.close()
  with contextlib.suppress(subprocess.TimeoutExpired):
    process.wait(_SECONDS)
  os.close(writer)
  process.kill()
  process.wait()


def _leave_to_parent() -> None:
  """Lets helpers end with the process that started them."""
  for helper in [*_running]:
    helper.leave_to_parent()
  _running.clear()


os.register_at_fork(after_in_child=_leave_to_parent)
