"""Finds the processes that remain after a loss.

The process of the lowest rank that is alive collects the others at its address
and sends them the list. A process is alive if it has registered, or if its port
accepts connections: its old helper may not know of the loss yet, because no
exchange is due. A process whose port has refused connections for some seconds
is lost. No message is trusted further than the rank that it names.
"""

import contextlib
import json
import socket
import time
from collections.abc import Sequence
from typing import Any

from terngrad.cluster import spec

# Seconds that a port must refuse connections: a process has none open while it
# replaces its helper.
GRACE = 5.0
_POLL, _MOST_BYTES = 0.2, 4096


def remaining(addresses: Sequence[str], rank: int) -> list[int]:
  """Returns the ranks of the processes that are alive, ascending.

  The processes that are alive call it and get the same list, unless the network
  between them is cut.

  Args:
    addresses: 'host:port' of all processes, by rank. The port of this process
      must be free.
    rank: of this process.
  """
  for candidate in range(rank):
    found = _ask(addresses, candidate, rank)
    if found is not None:
      return found
  return _collect(addresses, rank)


def _ask(
  addresses: Sequence[str], candidate: int, rank: int
) -> list[int] | None:
  """Registers with a process and waits for its list; None if it is lost."""
  end = time.monotonic() + GRACE
  while time.monotonic() < end:
    try:
      connection = _connect(addresses[candidate])
    except OSError:
      time.sleep(_POLL)
      continue
    end = time.monotonic() + GRACE
    with connection, contextlib.suppress(OSError, ValueError):
      connection.sendall(json.dumps({'rank': rank}).encode() + b'\n')
      # Until the list is complete.
      connection.settimeout(None)
      ranks = _read(connection)
      if isinstance(ranks, list) and rank in ranks:
        return [number for number in range(len(addresses)) if number in ranks]
    # Its old helper does not answer.
    time.sleep(_POLL)
  return None


def _collect(addresses: Sequence[str], rank: int) -> list[int]:
  """Waits until each other process has registered or is lost."""
  registered: dict[int, socket.socket] = {}
  others = range(rank + 1, len(addresses))
  deadlines = {number: time.monotonic() + GRACE for number in others}
  with _listen(addresses[rank]) as listener, contextlib.ExitStack() as stack:
    while deadlines:
      # A connection that sends something else is ignored.
      with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        connection = stack.enter_context(listener.accept()[0])
        connection.settimeout(GRACE)
        number = _read(connection)['rank']
        if number in others:
          registered[number] = connection
          deadlines.pop(number, None)
      for number in [*deadlines]:
        if _accepts(addresses[number]):
          deadlines[number] = time.monotonic() + GRACE
        elif time.monotonic() > deadlines[number]:
          del deadlines[number]
    ranks = [rank, *sorted(registered)]
    for connection in registered.values():
      with contextlib.suppress(OSError):
        connection.sendall(json.dumps(ranks).encode() + b'\n')
  return ranks


def _connect(address: str) -> socket.socket:
  host, _, port = address.rpartition(':')
  return socket.create_connection((host.strip('[]'), int(port)), GRACE)


def _accepts(address: str) -> bool:
  with contextlib.suppress(OSError), _connect(address):
    return True
  return False


def _listen(address: str) -> socket.socket:
  """Listens on the port of this process, only locally if the address is."""
  host, _, port = address.rpartition(':')
  listener = socket.create_server(
    (host.strip('[]') if spec.is_loopback(address) else '', int(port)),
    family=socket.AF_INET6 if host.startswith('[') else socket.AF_INET,
  )
  listener.settimeout(_POLL)
  return listener


def _read(connection: socket.socket) -> Any:
  """Reads one line of JSON; raises ValueError for anything else."""
  with connection.makefile('rb') as file:
    return json.loads(file.readline(_MOST_BYTES))
