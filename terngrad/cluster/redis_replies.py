"""Reads the replies of a Redis server that may be hostile or broken.

The reader of the package redis takes whatever it is sent, of any size and for
as long as some of it comes. A process that looks for its run's addresses asks
for little and knows its form: lists of texts, and lines.

References:
  The protocol RESP2, https://redis.io/docs/latest/develop/reference/protocol-spec/
"""

import re
import socket
import time
from typing import Any
from typing import TypeAlias

from redis import connection
from redis import exceptions

MAX_BYTES = 65536
SECONDS = 5.0
_END = b'\r\n'
_NUMBER = re.compile(rb'-?[0-9]{1,18}')
_NONE = -1
Reply: TypeAlias = bytes | int | None | exceptions.RedisError | list['Reply']


class Parser:
  """Reads a reply of 64 KB at most within 5 seconds, however it comes.

  A `parser_class` of the package redis. Replies are bytes, int, None, an
  exception of the server's, or a list of those.
  """

  def __init__(self, socket_read_size: int) -> None:
    """Has no connection yet; the package calls it with its own read size."""
    del socket_read_size
    self._socket: socket.socket | None = None
    self._received = bytearray()

  def on_connect(self, connection: 'connection.Connection') -> None:
    """Begins to read from another connection."""
    self._socket, self._received = connection._sock, bytearray()

  def on_disconnect(self) -> None:
    """Forgets the connection."""
    self._socket, self._received = None, bytearray()

  def can_read(self, timeout: float = 0) -> bool:
    """Whether anything came within so many seconds.

    Raises:
      exceptions.ConnectionError: the server has closed the connection.
    """
    try:
      return bool(self._received) or self._receive(timeout)
    except exceptions.TimeoutError:
      return False

  def read_response(self, disable_decoding: bool = False, **more: Any) -> Reply:
    """Reads a reply.

    Raises:
      exceptions.InvalidResponse: it is none, or too large.
      exceptions.ConnectionError, exceptions.TimeoutError: it did not come, or
        not as a whole.
    """
    del disable_decoding, more
    self._left, self._end = MAX_BYTES, time.monotonic() + SECONDS
    return self._reply()

  def _reply(self, inside: bool = False) -> Reply:
    line = self._line()
    kind, rest = line[:1], line[1:]
    if kind == b'+':
      return rest
    if kind == b'-':
      error = _error(rest.decode(errors='replace'))
      # As the package's own: after others the connection can be used.
      if isinstance(error, exceptions.ConnectionError):
        raise error
      return error
    if kind in b':$*' and _NUMBER.fullmatch(rest):
      number = int(rest)
      if kind == b':':
        return number
      if number == _NONE:
        return None
      if kind == b'$' and number >= 0:
        return self._text(number)
      if kind == b'*' and number >= 0 and not inside:
        return [self._reply(inside=True) for _ in range(number)]
    raise exceptions.InvalidResponse(f'no reply of Redis: {line[:100]!r}')

  def _line(self) -> bytes:
    while (size := self._received.find(_END)) < 0:
      self._wait_for(len(self._received) + 1)
    return self._take(size)

  def _text(self, size: int) -> bytes:
    self._wait_for(size + len(_END))
    return self._take(size)

  def _take(self, size: int) -> bytes:
    """Takes so many bytes, and the end of the line behind them."""
    taken = bytes(self._received[:size])
    end = size + len(_END)
    if self._received[size:end] != _END:
      raise exceptions.InvalidResponse(
        f'a text that does not end where it should: {taken[-100:]!r}'
      )
    del self._received[:end]
    self._left -= end
    return taken

  def _wait_for(self, size: int) -> None:
    """Receives until there are so many bytes."""
    if size > self._left:
      raise exceptions.InvalidResponse(
        f'a reply of more than {MAX_BYTES} bytes'
      )
    while len(self._received) < size:
      self._receive(self._end - time.monotonic())

  def _receive(self, seconds: float) -> bool:
    """Receives something within so many seconds; True."""
    if self._socket is None:
      raise exceptions.ConnectionError('no connection')
    before = self._socket.gettimeout()
    # 0 would be without a wait, which TLS cannot do.
    self._socket.settimeout(max(seconds, 1e-3))
    try:
      some = self._socket.recv(4096)
    except TimeoutError as error:
      raise exceptions.TimeoutError(
        f'no whole reply within {SECONDS:g} s'
      ) from error
    except OSError as error:
      raise exceptions.ConnectionError(str(error)) from error
    finally:
      self._socket.settimeout(before)
    if not some:
      raise exceptions.ConnectionError('the server closed the connection')
    self._received += some
    return True


def _error(text: str) -> exceptions.RedisError:
  """The package's exception for what a server says; one of its own is none."""
  try:
    # The package redis has types but for this.
    return connection.DefaultParser.parse_error(text)  # type: ignore[no-untyped-call]
  except Exception:  # of MOVED without a place, as an example
    return exceptions.ResponseError(text)
