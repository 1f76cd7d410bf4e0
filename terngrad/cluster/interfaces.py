"""Addresses of this machine's network interfaces, on Linux."""

import fcntl
import socket
import struct

from terngrad import errors

# The request for the IPv4 address of an interface, netdevice(7).
_SIOCGIFADDR = 0x8915


def address(names: str, option: str) -> str:
  """Returns the IPv4 address of the first of some network interfaces.

  Args:
    names: separated by commas, such as 'eth0,eth1'.
    option: the option that names them, which begins the message.

  Raises:
    errors.ConfigError: there is no such interface, or it has no such address.
  """
  name = names.split(',')[0].strip()
  known = [known for _, known in socket.if_nameindex()]
  try:
    if name not in known:
      raise OSError('there is no such interface')
    request = struct.pack('256s', name.encode())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
      answer = fcntl.ioctl(any_socket.fileno(), _SIOCGIFADDR, request)
  except OSError as error:
    raise errors.ConfigError(
      f'{option}: expected a network interface with an IPv4 address, one of '
      f'{", ".join(known)}, received {name[:100]!r}: {error}. Name another '
      'one, or give --own_address=HOST:PORT.'
    ) from error
  return socket.inet_ntoa(answer[20:24])
