"""A parser for replies of a Redis server that may be hostile or broken.

The package redis reads replies of any size, for as long as data arrives. A
rendezvous needs only small replies of a known form: lists of texts, and lines.

References:
  The protocol RESP2,
  https://redis.io/docs/latest/develop/reference/protocol-spec/
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
  """Reads a reply of at most 64 KB within 5 seconds, however it arrives.

  A `parser_class` of the package redis. Replies are bytes, int, None, an
  exception of the server, or a list of those.
  """

  def __init__(self, socket_read_size: int) -> None:
    """Creates a parser without connection; ignores the package's read size."""
    del socket_read_size
    self._socket: socket.socket | None = None
    self._received = bytearray()

  def on_connect(self, connection: 'connection.Connection') -> None:
    """Starts to read from a new connection."""
    self._socket, self._received = connection._sock, bytearray()

  def on_disconnect(self) -> None:
    """Drops the connection and unread bytes."""
    self._socket, self._received = None, bytearray()

  def can_read(self, timeout: float = 0) -> bool:
    """Returns whether any data arrived within `timeout` seconds.

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
      exceptions.InvalidResponse: the reply is malformed or too large.
      exceptions.ConnectionError: the connection failed.
      exceptions.TimeoutError: no complete reply arrived in time.
    """
    del disable_decoding, more
    self._bytes_left, self._end = MAX_BYTES, time.monotonic() + SECONDS
    return self._reply()

  def _reply(self, nested: bool = False) -> Reply:
    line = self._line()
    kind, rest = line[:1], line[1:]
    if kind == b'+':
      return rest
    if kind == b'-':
      error = _error(rest.decode(errors='replace'))
      # As in the package: after other errors the connection stays usable.
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
      if kind == b'*' and number >= 0 and not nested:
        return [self._reply(nested=True) for _ in range(number)]
    raise exceptions.InvalidResponse(f'not a Redis reply: {line[:100]!r}')

  def _line(self) -> bytes:
    while (size := self._received.find(_END)) < 0:
      self._wait_for(len(self._received) + 1)
    return self._take(size)

  def _text(self, size: int) -> bytes:
    self._wait_for(size + len(_END))
    return self._take(size)

  def _take(self, size: int) -> bytes:
    """Removes `size` bytes and the line end after them; returns the bytes."""
    taken = bytes(self._received[:size])
    end = size + len(_END)
    if self._received[size:end] != _END:
      raise exceptions.InvalidResponse(
        f'a string that does not have the stated length: {taken[-100:]!r}'
      )
    del self._received[:end]
    self._bytes_left -= end
    return taken

  def _wait_for(self, size: int) -> None:
    """Receives until `size` bytes are available."""
    if size > self._bytes_left:
      raise exceptions.InvalidResponse(
        f'a reply of more than {MAX_BYTES} bytes'
      )
    while len(self._received) < size:
      seconds = self._end - time.monotonic()
      if seconds <= 0:
        raise _late()
      self._receive(seconds)

  def _receive(self, seconds: float) -> bool:
    """Receives some bytes within so many seconds; returns True."""
    if self._socket is None:
      raise exceptions.ConnectionError('no connection')
    before = self._socket.gettimeout()
    # 0 would mean non-blocking, which TLS does not support.
    self._socket.settimeout(max(seconds, 1e-3))
    try:
      some = self._socket.recv(4096)
    except TimeoutError as error:
      raise _late() from error
    except OSError as error:
      raise exceptions.ConnectionError(str(error)) from error
    finally:
      self._socket.settimeout(before)
    if not some:
      raise exceptions.ConnectionError('the server closed the connection')
    self._received += some
    return True


def _late() -> exceptions.TimeoutError:
  return exceptions.TimeoutError(f'no complete reply within {SECONDS:g} s')


def _error(text: str) -> exceptions.RedisError:
  """Converts a server's error text to the package's exception."""
  try:
    # The package redis has no types for this function.
    return connection.DefaultParser.parse_error(text)  # type: ignore[no-untyped-call]
  except Exception:  # such as for MOVED without an address
    return exceptions.ResponseError(text)
