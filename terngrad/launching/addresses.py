"""Addresses of tasks, `host:port`."""

import re

_BYTE = '(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])'
# 127.999.0.1 is no IP address, so it may be the name of a host.
_LOOPBACK = re.compile(rf'(localhost|127(\.{_BYTE}){{3}}|\[::1\]):')
_ADDRESS = re.compile(
  r'([A-Za-z0-9_][A-Za-z0-9_.-]{0,252}|\[[0-9A-Fa-f:.]{2,45}\])'
  r':[1-9][0-9]{0,4}'
)
_MAX_PORT = 65535


def is_valid(text: str) -> bool:
  """Checks whether a text is host:port, or [host]:port for IPv6."""
  return bool(_ADDRESS.fullmatch(text)) and int(port(text)) <= _MAX_PORT


def host(address: str) -> str:
  """Returns the host of an address, without brackets."""
  return address.rpartition(':')[0].removeprefix('[').removesuffix(']')


def port(address: str) -> str:
  """Returns the port of an address."""
  return address.rpartition(':')[2]


def is_loopback(address: str) -> bool:
  """Checks whether an address is localhost, 127.x.x.x or [::1]."""
  return bool(_LOOPBACK.match(address))
