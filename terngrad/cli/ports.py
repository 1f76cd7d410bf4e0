"""Free ports of this machine."""

import contextlib
import socket

from terngrad import errors


def free(count: int) -> list[int]:
  """Returns different ports of 127.0.0.1 that were free at the call.

  Args:
    count: >= 1.

  Raises:
    errors.ConfigError: the system does not have so many ports, or files.
  """
  with contextlib.ExitStack() as stack:
    try:
      # Bind all at the same time, so that the ports differ.
      sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
      for one in sockets:
        one.bind(('127.0.0.1', 0))
    except OSError as error:
      raise errors.ConfigError(
        f'Processes: expected {count} free ports on this machine, received: '
        f'{error.strerror}. Start fewer processes, or raise the limit of open '
        'files (ulimit -n).'
      ) from error
    return [one.getsockname()[1] for one in sockets]
