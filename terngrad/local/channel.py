"""The connection between a training process and its helper.

Each message is one line of JSON. A pipe ends the helper with the training
process, however that ends: its writing end closes, and the kernel sends SIGKILL
to the helper. A thread could not do that, because TensorFlow holds Python's
lock while processes join.
"""

import fcntl
import json
import os
import select
import signal
import socket
from typing import Any

# Requests to a helper. Its index stands for a request in gathered rows.
EXCHANGE, FINISH = REQUESTS = ('exchange', 'finish')


class Channel:
  """Messages in both directions."""

  def __init__(self, connection: socket.socket) -> None:
    """Takes a connected socket."""
    self._socket = connection
    self._file = connection.makefile('rwb')

  def write(self, **message: Any) -> None:
    """Sends a message.

    Raises:
      OSError: the other process has ended.
    """
    self._file.write(json.dumps(message).encode() + b'\n')
    self._file.flush()

  def receive(self) -> dict[str, Any]:
    """Waits for a message.

    Raises:
      EOFError: the other process has ended.
    """
    try:
      line = self._file.readline()
    except ConnectionError:
      line = b''
    if not line.endswith(b'\n'):
      raise EOFError('the connection is closed')
    return dict(json.loads(line))

  def wait(self, seconds: float) -> bool:
    """Waits for the first message; returns whether it comes in time."""
    return _is_readable(self._socket.fileno(), seconds)

  def abandon(self) -> None:
    """Closes the copy of a forked process, without sending anything."""
    os.close(self._socket.detach())

  def close(self) -> None:
    """Closes the connection."""
    try:
      self._file.close()
    except OSError:
      # An unsent message to a process that has ended.
      pass
    self._socket.close()


def end_with_writer(pipe: int) -> None:
  """Ends this process when the writing end of a pipe is closed.

  Nothing must be written to the pipe.

  Args:
    pipe: descriptor of the reading end.
  """
  fcntl.fcntl(pipe, fcntl.F_SETOWN, os.getpid())
  fcntl.fcntl(pipe, fcntl.F_SETSIG, signal.SIGKILL)
  flags = fcntl.fcntl(pipe, fcntl.F_GETFL)
  fcntl.fcntl(pipe, fcntl.F_SETFL, flags | os.O_ASYNC)
  # It may have been closed before.
  if _is_readable(pipe, 0):
    os.kill(os.getpid(), signal.SIGKILL)


def _is_readable(descriptor: int, seconds: float) -> bool:
  # Not select(2), which takes no descriptors above 1023.
  waiting = select.poll()
  waiting.register(descriptor, select.POLLIN)
  return bool(waiting.poll(1000 * seconds))
