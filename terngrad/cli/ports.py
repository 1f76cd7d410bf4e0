"""Free ports of this machine."""

import contextlib
import socket


def free(count: int) -> list[int]:
  """Returns different ports of 127.0.0.1 that were free at the call.

  Args:
    count: >= 1.
  """
  with contextlib.ExitStack() as stack:
    # Bind all at the same time, so that the ports differ.
    sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
    for one in sockets:
      one.bind(('127.0.0.1', 0))
    return [one.getsockname()[1] for one in sockets]
