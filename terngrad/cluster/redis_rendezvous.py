"""A place to meet at a Redis server; see `rendezvous`."""

import re
import urllib.parse

from terngrad.cluster import rendezvous
from terngrad.cluster import spec as clusters

_RUN_ID = re.compile(r'[\w.+-]{1,100}', re.ASCII)
# Seconds that an entry outlives the last look at it: a run of yesterday has
# gone, one that is started anew within the hour meets again.
_KEPT = 24 * 3600
_SOCKET_SECONDS = 5

# Leaves an address, and reads all: in one script, so that two processes cannot
# both be one. KEYS: the run. ARGV: processes, index, address, seconds to keep,
# the most bytes of an answer. Returns the number of processes there, and either
# that of another run or the addresses, '' for none.
_LOOK = """
local there = redis.call('HGET', KEYS[1], 'processes')
if there and there ~= ARGV[1] then return {string.sub(there, 1, 20)} end
redis.call('HSET', KEYS[1], 'processes', ARGV[1])
redis.call('HSETNX', KEYS[1], ARGV[2], ARGV[3])
redis.call('EXPIRE', KEYS[1], ARGV[4])
local found = {ARGV[1]}
for i = 0, tonumber(ARGV[1]) - 1 do
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

  def __init__(self, url, run_id, password=None):
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
    except ImportError as error:
      raise clusters.ClusterError(
        'cluster: expected the package redis for --cluster=redis:URL, received '
        'none. Install it: pip install redis.'
      ) from error
    try:
      self._client = redis.Redis.from_url(
        url,
        socket_timeout=_SOCKET_SECONDS,
        socket_connect_timeout=_SOCKET_SECONDS,
        # `rendezvous.meet` tries again, and knows until when.
        retry=retry.Retry(backoff.NoBackoff(), 0),
        **({'password': password} if password else {}),
      )
    except ValueError:
      raise clusters.ClusterError(
        'cluster: expected redis:redis://HOST:PORT/DATABASE, or rediss:// for '
        f'TLS, received redis:{clusters.shown(shown)}. Mend the URL.'
      ) from None
    self._errors = redis.exceptions
    self._key = f'terngrad:rendezvous:{run_id}'
    self._look = self._client.register_script(_LOOK)
    self.name = f'run {run_id} at {shown}'

  def look(self, index, count, address):
    """See `rendezvous.meet`."""
    limit = rendezvous.MAX_BYTES
    try:
      there, *found = self._look(
        keys=[self._key], args=[count, index, address, _KEPT, limit]
      )
    except (
      self._errors.AuthenticationError,
      self._errors.ResponseError,
    ) as error:
      raise clusters.ClusterError(
        f'{self.name}: expected to leave an address there, received: '
        f'{clusters.shown(str(error))}. Look at the password, the rights of '
        f'the user and what the key {self._key} holds.'
      ) from error
    except self._errors.RedisError as error:
      raise ConnectionError(str(error)) from error
    there = there.decode('ascii', 'replace')
    if there != str(count):
      raise clusters.ClusterError(
        f'{self.name}: expected a run of {count} processes, received one of '
        f'{clusters.shown(there)}: another run was here. {self.another}'
      )
    texts = [text.decode('ascii', 'replace') or None for text in found]
    return dict(enumerate(texts))

  def where(self, index, count):
    """What messages call the entry of a process."""
    del count
    return f'{self.name}, process {index}'


def _without_password(url):
  try:
    parts = urllib.parse.urlsplit(url)
  except ValueError:
    return '?'
  place = parts.netloc.rpartition('@')[2]
  return f'{parts.scheme}://{place}{parts.path}'
