"""Finds the processes that exchange, before the first one and after a loss.

Each process listens at its address from the beginning. It connects to all
others and registers: it sends the addresses of those that exchange, its own
first, and `_FIRST` before its first exchange. Those that are not among the
addresses have left the run.

A process is alive if its port accepts connections: its old helper may not know
of the loss yet, because no exchange is due. A process is lost if its port has
refused connections for `GRACE` seconds and it has not registered. But before
the first exchange none is lost, as it may start later. A process that was lost
and started again believes to be before the first exchange too, as long as no
other one is registered without `_FIRST`.

The process of the lowest rank that is alive decides. It waits until each other
process has registered or is lost, and sends the list to those that registered.
If it is lost before that, the next one decides: all have registered there too.

All messages are one line: addresses, with spaces between. A process takes a
list, and the addresses of a registration, if they contain its address and that
of the sender. No other message is trusted further than the address that it
names.
"""

import contextlib
import socket
import time
from collections.abc import Sequence

from absl import logging

from terngrad.cluster import spec

# Seconds that a port must refuse connections: a process has none open while it
# replaces its helper.
GRACE = 5.0
_POLL, _MOST_BYTES = 0.2, 1 << 16
# No address: it has no port.
_FIRST = 'first'
# Seconds after which a process says once for which others it waits.
_PATIENCE = 60.0
# Seconds without an answer of a host that has lost power.
_KEEPALIVE = {
  socket.TCP_KEEPIDLE: 10,
  socket.TCP_KEEPINTVL: 5,
  socket.TCP_KEEPCNT: 3,
}


def remaining(
  addresses: Sequence[str], rank: int, is_first: bool = False
) -> list[int]:
  """Returns the ranks of the processes that are alive, ascending.

  The processes that are alive call it and get the same list, in whatever order
  they learn of a loss and however many are lost. There are three exceptions:
  the network between two of them is cut, the port of one is closed for longer
  than `GRACE` seconds before it calls, or the process that decides is lost
  while it sends the list.

  Args:
    addresses: 'host:port' of all processes, by rank. The port of this process
      must be free.
    rank: of this process.
    is_first: True before the first exchange of this process. It then waits for
      all, unless another process has exchanged before.

  Raises:
    OSError: the port of this process is in use.
  """
  search = _Search(addresses, rank, is_first)
  started: float | None = time.monotonic()
  with contextlib.closing(search):
    while True:
      search.connect()
      if started and time.monotonic() - started > _PATIENCE:
        started = None
        logging.warning(
          'Local steps: waiting for %s. Start the processes that are missing, '
          'all with the same on_lost_worker. If the others go on without this '
          'one, stop it.',
          ', '.join(search.missing()),
        )
      search.accept()
      found = search.receive() or search.decide()
      if found:
        return [i for i, address in enumerate(addresses) if address in found]


class _AddressReader:
  """A connection that delivers one line of addresses."""

  def __init__(self, connection: socket.socket) -> None:
    """Takes a connected socket."""
    connection.setblocking(False)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE.items():
      connection.setsockopt(socket.IPPROTO_TCP, option, value)
    self.connection = connection
    self.deadline = time.monotonic() + GRACE
    self._line = b''

  def read(self) -> list[str] | None:
    """Reads what has arrived, without waiting.

    Returns:
      The addresses of a line; None if it is not complete; [] if it never will
      be, because the connection is closed.
    """
    try:
      received = self.connection.recv(_MOST_BYTES)
    except BlockingIOError:
      return None
    except OSError:
      return []
    self._line += received
    if self._line.endswith(b'\n'):
      line, self._line = self._line, b''
      return line.decode(errors='replace').split()
    return None if received and len(self._line) < _MOST_BYTES else []


class _Search:
  """What a process knows of the others."""

  def __init__(
    self, addresses: Sequence[str], rank: int, is_first: bool
  ) -> None:
    """Listens at the address of this process."""
    self._local, self._lower = addresses[rank], addresses[:rank]
    self._others = [a for a in addresses if a != self._local]
    self._began_first = is_first
    self._listener = _listen(self._local)
    # By address: to the others, and from those that have registered.
    self._links: dict[str, _AddressReader] = {}
    self._registered: dict[str, _AddressReader] = {}
    # Addresses that have registered without `_FIRST`.
    self._running: set[str] = set()
    self._strangers: list[_AddressReader] = []
    self._refused_since: dict[str, float] = {}
    self._lost: set[str] = set()

  def connect(self) -> None:
    """Registers with each other process, or finds that it is lost."""
    lost = self._left_out()
    words = [self._local, *self._others, *[_FIRST] * self._began_first]
    for address in self._others:
      if address in self._links or address in lost:
        continue
      try:
        self._links[address] = _AddressReader(_connect(address))
      except OSError:
        since = self._refused_since.setdefault(address, time.monotonic())
        if time.monotonic() - since > GRACE:
          self._lost.add(address)
      else:
        self._refused_since.pop(address, None)
        self._lost.discard(address)
        _send(words, self._links[address])

  def _is_first(self) -> bool:
    """Whether no process is known to have exchanged."""
    return self._began_first and not self._running & {*self._registered}

  def _left_out(self) -> set[str]:
    """Returns the lost processes; none before the first exchange of all."""
    return set() if self._is_first() else self._lost

  def accept(self) -> None:
    """Waits for a short time for a connection."""
    with contextlib.suppress(OSError):
      self._strangers.append(_AddressReader(self._listener.accept()[0]))

  def receive(self) -> list[str]:
    """Reads all connections; returns the list, [] if it has not arrived."""
    for reader in [*self._strangers]:
      words = reader.read()
      if words is None and time.monotonic() < reader.deadline:
        continue
      self._strangers.remove(reader)
      if words and words[0] in self._others and self._local in words:
        self._register(words, reader)
      else:
        reader.connection.close()
    for address, reader in [*self._registered.items()]:
      if reader.read() is not None:
        _close(self._registered, address)
    for address, link in [*self._links.items()]:
      words = link.read()
      if words is not None:
        # Otherwise it is lost, or an old helper that does not understand.
        if {address, self._local} <= {*words}:
          return words
        _close(self._links, address)
    return []

  def _register(self, words: Sequence[str], reader: _AddressReader) -> None:
    was_first, address = self._is_first(), words[0]
    # It connects again if a connection is cut.
    _close(self._registered, address)
    self._registered[address] = reader
    self._lost.discard(address)
    if _FIRST in words:
      self._running.discard(address)
    else:
      self._running.add(address)
    if was_first and not self._is_first():
      # Those that were waited for until now get their time too.
      self._refused_since.clear()
      self._lost.clear()
    self._keep(words)

  def _keep(self, addresses: Sequence[str]) -> None:
    """Forgets processes that are not among these, and have left the run."""
    for address in {*self._others} - {*addresses}:
      self._others.remove(address)
      for readers in (self._links, self._registered):
        _close(readers, address)

  def missing(self) -> list[str]:
    """Returns the addresses of those that have not registered here."""
    return [a for a in self._others if a not in self._registered]

  def decide(self) -> list[str]:
    """Makes and sends the list; returns [] if it is not complete."""
    awaited = {*self._others} - self._left_out()
    if awaited & {*self._lower} or awaited - self._registered.keys():
      return []
    found = [self._local, *self._registered]
    _send(found, *self._registered.values())
    return found

  def close(self) -> None:
    """Closes all connections."""
    self._listener.close()
    readers = *self._links.values(), *self._registered.values()
    for reader in (*self._strangers, *readers):
      reader.connection.close()


def _send(addresses: Sequence[str], *readers: _AddressReader) -> None:
  """Sends a line to those that have not closed the connection."""
  for reader in readers:
    with contextlib.suppress(OSError):
      reader.connection.sendall(' '.join(addresses).encode() + b'\n')


def _close(readers: dict[str, _AddressReader], address: str) -> None:
  if address in readers:
    readers.pop(address).connection.close()


def _connect(address: str) -> socket.socket:
  host, _, port = address.rpartition(':')
  return socket.create_connection((host.strip('[]'), int(port)), GRACE)


def _listen(address: str) -> socket.socket:
  """Listens on the port of this process, only locally if the address is."""
  host, _, port = address.rpartition(':')
  listener = socket.create_server(
    (host.strip('[]') if spec.is_loopback(address) else '', int(port)),
    family=socket.AF_INET6 if host.startswith('[') else socket.AF_INET,
  )
  listener.settimeout(_POLL)
  return listener
