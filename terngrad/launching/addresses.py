"""Addresses of tasks, `host:port`."""

import re

_BYTE = '(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])'
# 127.999.0.1 is the name of some host.
_LOOPBACK = re.compile(rf'(localhost|127(\.{_BYTE}){{3}}|\[::1\]):')
_FORM = re.compile(
  r'([A-Za-z0-9_][A-Za-z0-9_.-]{0,252}|\[[0-9A-Fa-f:.]{2,45}\])'
  r':[1-9][0-9]{0,4}'
)
_MOST = 65535


def is_one(text: str) -> bool:
  """Whether it is host:port, or [host]:port of IPv6."""
  return bool(_FORM.fullmatch(text)) and int(port(text)) <= _MOST


def host(address: str) -> str:
  """The host, without brackets."""
  return address.rpartition(':')[0].removeprefix('[').removesuffix(']')


def port(address: str) -> str:
  """The port."""
  return address.rpartition(':')[2]


def is_loopback(address: str) -> bool:
  """Whether it is of this machine alone."""
  return bool(_LOOPBACK.match(address))
