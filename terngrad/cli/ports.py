"""Ports of this machine that nobody uses."""

import contextlib
import socket


def free(count: int) -> list[int]:
  """So many ports of 127.0.0.1 that were free a moment ago.

  Args:
    count: >= 1.

  Returns:
    All different.
  """
  with contextlib.ExitStack() as stack:
    # All held at once, so that they differ.
    sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
    for one in sockets:
      one.bind(('127.0.0.1', 0))
    return [one.getsockname()[1] for one in sockets]
