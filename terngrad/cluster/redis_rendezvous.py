"""A place to meet at a Redis server; see `rendezvous`."""

import re
import urllib.parse
from typing import Any

from terngrad.cluster import rendezvous
from terngrad.cluster import spec as clusters

_RUN_ID = re.compile(r'[\w.+-]{1,100}', re.ASCII)
# Seconds that an entry outlives the last look at it: a run of yesterday has
# gone, one that is started anew within the hour meets again.
_KEPT = 24 * 3600
_SOCKET_SECONDS = 5
# Addresses in a reply: with the most bytes of each they fit into the largest.
_SLICE = 200

# Leaves an address, and reads some: in one script, so that two processes cannot
# both be one. KEYS: the run. ARGV: processes, index, address, seconds to keep,
# the most bytes of an address, the first and the last index to read. Returns
# the number of processes there: of another run, or of this one and the
# addresses, '' for none.
_LOOK = """
local there = redis.call('HGET', KEYS[1], 'processes')
if there and there ~= ARGV[1] then return {string.sub(there, 1, 20)} end
redis.call('HSET', KEYS[1], 'processes', ARGV[1])
redis.call('HSETNX', KEYS[1], ARGV[2], ARGV[3])
redis.call('EXPIRE', KEYS[1], ARGV[4])
local found = {ARGV[1]}
for i = tonumber(ARGV[6]), tonumber(ARGV[7]) do
  local address = redis.call('HGET', KEYS[1], i) or ''
  found[#found + 1] = string.sub(address, 1, ARGV[5])
end
return found
"""


class Server:
  """A Redis server that holds a hash for every run.

  Attributes:
    name: the server's address, without a password, and the run.
    another: how a run gets another one.
  """

  another = 'Give this run another --run_id.'

  def __init__(
    self, url: str, run_id: str, password: str | None = None
  ) -> None:
    """Connects when it is first looked at.

    Args:
      url: redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE], rediss:// for TLS.
      run_id: of letters, digits and . + - _, the same for all processes of a
        run and new for each run.
      password: of the server, in place of the URL's; or None.

    Raises:
      clusters.ClusterError: what is given cannot be, or there is no package
        redis.
    """
    if not _RUN_ID.fullmatch(run_id):
      raise clusters.ClusterError(
        'run_id: expected 1 to 100 letters, digits and . + - _, received '
        f'{clusters.shown(run_id)}. Give all processes of a run the same.'
      )
    # Whatever is wrong with the URL, its password is not told.
    shown = _without_password(url)
    try:
      import redis
      from redis import backoff
      from redis import retry

      from terngrad.cluster import redis_replies
    except ImportError as error:
      raise clusters.ClusterError(
        'cluster: expected the package redis for --cluster=redis:URL, received '
        'none. Install it: pip install redis.'
      ) from error
    settings: dict[str, Any] = {
      'socket_timeout': _SOCKET_SECONDS,
      'socket_connect_timeout': _SOCKET_SECONDS,
      # `rendezvous.meet` tries again, and knows until when.
      'retry': retry.Retry(backoff.NoBackoff(), 0),
      'parser_class': redis_replies.Parser,
      'protocol': 2,
      'decode_responses': False,
    } | ({'password': password} if password else {})
    try:
      pool = redis.ConnectionPool.from_url(url, **settings)
    except ValueError:
      raise clusters.ClusterError(
        'cluster: expected redis:redis://HOST:PORT/DATABASE, or rediss:// for '
        f'TLS, received redis:{clusters.shown(shown)}. Mend the URL.'
      ) from None
    # An URL may say otherwise.
    pool.connection_kwargs.update(settings)
    self._client = redis.Redis(connection_pool=pool)
    self._errors = redis.exceptions
    self._key = f'terngrad:rendezvous:{run_id}'
    self.name = f'run {run_id} at {shown}'

  def look(self, index: int, count: int, address: str) -> dict[int, str | None]:
    """See `rendezvous.Place`."""
    texts: list[bytes] = []
    for first in range(0, count, _SLICE):
      last = min(first + _SLICE, count) - 1
      texts += self._ask(index, count, address, first, last)
    return {
      i: text.decode('ascii', 'replace') or None for i, text in enumerate(texts)
    }

  def _ask(
    self, index: int, count: int, address: str, first: int, last: int
  ) -> list[bytes]:
    """The addresses that are there, from the first index to the last."""
    words = count, index, address, _KEPT, rendezvous.MAX_BYTES, first, last
    try:
      reply = self._client.eval(_LOOK, 1, self._key, *words)
    except (
      self._errors.AuthenticationError,
      self._errors.ResponseError,
    ) as error:
      raise clusters.ClusterError(
        f'{self.name}: expected to leave an address there, received: '
        f'{clusters.shown(str(error))}. Look at the password, the rights of '
        f'the user and what the key {self._key} holds.'
      ) from error
    except self._errors.InvalidResponse as error:
      raise self._strange(str(error)) from error
    except self._errors.RedisError as error:
      raise ConnectionError(str(error)) from error
    if not isinstance(reply, list) or not all(type(t) is bytes for t in reply):
      raise self._strange(reply)
    there = reply[:1]
    if there and there != [b'%d' % count]:
      raise clusters.ClusterError(
        f'{self.name}: expected a run of {count} processes, received one of '
        f'{clusters.shown(there[0].decode("ascii", "replace"))}: another run '
        f'was here. {self.another}'
      )
    if len(reply) != 2 + last - first:
      raise self._strange(reply)
    return reply[1:]

  def _strange(self, received: Any) -> clusters.ClusterError:
    return clusters.ClusterError(
      f'{self.name}: expected the addresses of processes from a Redis server, '
      f'received {clusters.shown(received)}. See what listens at this address, '
      'and give that of a Redis server.'
    )

  def where(self, index: int, count: int) -> str:
    """What messages call the entry of a process."""
    del count
    return f'{self.name}, process {index}'


def _without_password(url: str) -> str:
  try:
    parts = urllib.parse.urlsplit(url)
  except ValueError:
    return '?'
  place = parts.netloc.rpartition('@')[2]
  return f'{parts.scheme}://{place}{parts.path}'
