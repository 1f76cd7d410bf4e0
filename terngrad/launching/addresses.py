"""Addresses of tasks, `host:port`."""

from terngrad.cluster import spec


def is_valid(text: str) -> bool:
  """Checks whether a text is host:port, or [host]:port for IPv6."""
  try:
    return spec.parse_address(text) == text
  except spec.ClusterError:
    return False


def host(address: str) -> str:
  """Returns the host of an address, without brackets."""
  return spec.host_of(address).strip('[]')


def port(address: str) -> str:
  """Returns the port of an address."""
  return address.rpartition(':')[2]
