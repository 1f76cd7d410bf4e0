"""Rendezvous at a Redis server; see `rendezvous`."""

import re
import time
from collections.abc import Sequence
from typing import Any
from urllib import parse

from terngrad.cluster import rendezvous
from terngrad.cluster import spec as clusters
from terngrad.cluster import start_failures

# Scheme, user and password, host and path, options.
_URL = re.compile(r'(\w+://)(?:[^/?#]*@)?([^?#@\0-\x20\x7f]*)(?:[?#][^@]*)?')
# Options of a URL, after the ?.
_OPTIONS = {'db', 'client_name'}
_TLS_OPTIONS = {
  *('ssl_ca_certs', 'ssl_ca_path', 'ssl_cert_reqs', 'ssl_certfile'),
  *('ssl_check_hostname', 'ssl_keyfile'),
}
_RUN_ID = re.compile(r'[\w.+-]{1,100}', re.ASCII)
# Seconds after the last access until an entry expires: a run of yesterday is
# gone, and a run that restarts within the hour finds its addresses.
_EXPIRY = 24 * 3600
_SOCKET_SECONDS = 5
# Addresses per reply: at full length they fit into the largest reply.
_ADDRESSES_PER_REPLY = 200

# Writes an address and reads some, in one script, so that two processes cannot
# take the same index. KEYS: the run, and its failures. ARGV: number of
# processes, index, address, seconds to expiry, most bytes of an address, first
# and last index to read.
# Returns a list: the stored number of processes; if it is this run's number,
# the addresses follow, '' for a missing one.
_SCRIPT = """
local there = redis.call('HGET', KEYS[1], 'processes')
if there and there ~= ARGV[1] then return {string.sub(there, 1, 20)} end
redis.call('HSET', KEYS[1], 'processes', ARGV[1])
redis.call('HSETNX', KEYS[1], ARGV[2], ARGV[3])
redis.call('HDEL', KEYS[2], ARGV[2])
redis.call('EXPIRE', KEYS[1], ARGV[4])
local found = {ARGV[1]}
for i = tonumber(ARGV[6]), tonumber(ARGV[7]) do
  local address = redis.call('HGET', KEYS[1], i) or ''
  found[#found + 1] = string.sub(address, 1, ARGV[5])
end
return found
"""

# Stores a failure. KEYS: the run's failures. ARGV: index, reason, seconds to
# expiry.
_FAIL_SCRIPT = """
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('EXPIRE', KEYS[1], ARGV[3])
return {}
"""

# Returns the first failure as a list of index, milliseconds until it expires,
# and reason; or an empty list. ARGV: index to leave out, number of processes,
# most bytes of a reason.
_FAILED_SCRIPT = """
local left = redis.call('PTTL', KEYS[1])
for i = 0, tonumber(ARGV[2]) - 1 do
  local reason = i ~= tonumber(ARGV[1]) and redis.call('HGET', KEYS[1], i)
  if reason then
    return {tostring(i), tostring(left), string.sub(reason, 1, ARGV[3])}
  end
end
return {}
"""


class Server:
  """A Redis server that stores a hash for every run.

  Attributes:
    name: the server's address, without password, and the run.
    remedy: advice for messages: how to use another entry.
  """

  remedy = 'Give this run another --run_id.'

  def __init__(
    self, url: str, run_id: str, password: str | None = None
  ) -> None:
    """Checks the arguments; the first `sync` connects.

    Args:
      url: redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE], rediss:// for TLS;
        with ? and options of the package redis: db and client_name, and for
        TLS those of certificates.
      run_id: letters, digits and . + - _, the same for all processes of a run
        and new for each run.
      password: password of the server, instead of the URL's; or None.

    Raises:
      clusters.ClusterError: an argument is not valid, or the package redis is
        not installed.
    """
    if not _RUN_ID.fullmatch(run_id):
      raise clusters.ClusterError(
        'run_id: expected 1 to 100 letters, digits and . + - _, received '
        f'{clusters.quote(run_id)}. Give all processes of a run the '
        'same --run_id.'
      )
    # Messages about the URL never show its password.
    safe_url = _without_password(url)
    if not safe_url:
      raise _url_refusal('no scheme, an @ after the first / ? or #, or a space')
    _check_options(url)
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
      # `rendezvous.join` retries, within its time limit.
      'retry': retry.Retry(backoff.NoBackoff(), 0),
      'parser_class': redis_replies.Parser,
      'protocol': 2,
      'decode_responses': False,
    } | ({'password': password} if password else {})
    try:
      pool = redis.ConnectionPool.from_url(url, **settings)
    except ValueError:
      raise _url_refusal(f'redis:{clusters.quote(safe_url)}') from None
    # Options in the URL must not override these.
    pool.connection_kwargs.update(settings)
    self._client = redis.Redis(connection_pool=pool)
    self._errors = redis.exceptions
    self._key = f'terngrad:rendezvous:{run_id}'
    # When this process wrote its address.
    self._written: float | None = None
    self.name = f'run {run_id} at {safe_url}'

  def sync(self, index: int, count: int, address: str) -> dict[int, str | None]:
    """Writes this process's address, and reads those of all processes.

    Returns:
      {index: 'host:port'}, with None for a process without address.

    Raises:
      clusters.ClusterError: the entry belongs to another run, or the server
        refuses the request or sends something else.
      ConnectionError: the server cannot be reached at the moment.
    """
    if self._written is None:
      self._written = time.monotonic()
    texts: list[bytes] = []
    for first in range(0, count, _ADDRESSES_PER_REPLY):
      last = min(first + _ADDRESSES_PER_REPLY, count) - 1
      texts += self._ask(index, count, address, first, last)
    return {
      i: text.decode('ascii', 'replace') or None for i, text in enumerate(texts)
    }

  def _ask(
    self, index: int, count: int, address: str, first: int, last: int
  ) -> list[bytes]:
    """Returns the stored addresses, from the first index to the last."""
    values = count, index, address, _EXPIRY, rendezvous.MAX_BYTES, first, last
    keys = self._key, self._failures_of(count)
    reply = self._eval(_SCRIPT, keys, *values)
    stored = reply[:1]
    if stored and stored != [b'%d' % count]:
      raise clusters.ClusterError(
        f'{self.name}: expected a run of {count} processes, received one of '
        f'{clusters.quote(stored[0].decode("ascii", "replace"))}: another run '
        f'used this entry. {self.remedy}'
      )
    if len(reply) != 2 + last - first:
      raise self._unexpected_reply(reply)
    return reply[1:]

  def write_failure(self, index: int, count: int, reason: str) -> None:
    """Stores the failure of this process; see `start_failures`."""
    self._eval(
      _FAIL_SCRIPT,
      (self._failures_of(count),),
      *(index, reason, start_failures.SHOWN_SECONDS),
    )

  def read_failure(
    self, index: int, count: int
  ) -> start_failures.StartFailure | None:
    """Returns the failure of another process; see `start_failures`."""
    values = index, count, rendezvous.MAX_BYTES
    reply = self._eval(_FAILED_SCRIPT, (self._failures_of(count),), *values)
    if not reply:
      return None
    try:
      number, left, reason = (text.decode('ascii') for text in reply)
      age = start_failures.SHOWN_SECONDS - int(left) / 1000
      waited = time.monotonic() - (self._written or time.monotonic())
      return start_failures.StartFailure(int(number), reason, waited - age)
    except ValueError as error:
      raise self._unexpected_reply(reply) from error

  def _failures_of(self, count: int) -> str:
    """Returns the key of the failures of runs of this many processes."""
    return f'{self._key}:failed:{count}'

  def _eval(
    self, script: str, keys: Sequence[str], *values: str | int
  ) -> list[bytes]:
    """Runs a script at the server; returns its list of texts."""
    try:
      reply = self._client.eval(script, len(keys), *keys, *values)
    except (
      self._errors.AuthenticationError,
      self._errors.ResponseError,
    ) as error:
      raise clusters.ClusterError(
        f'{self.name}: expected to store an address there, received: '
        f'{clusters.quote(str(error))}. Check the password, the permissions of '
        f'the user and the value of the key {self._key}.'
      ) from error
    except self._errors.InvalidResponse as error:
      raise self._unexpected_reply(str(error)) from error
    except self._errors.RedisError as error:
      raise ConnectionError(str(error)) from error
    if not isinstance(reply, list) or not all(type(t) is bytes for t in reply):
      raise self._unexpected_reply(reply)
    return reply

  def _unexpected_reply(self, received: Any) -> clusters.ClusterError:
    return clusters.ClusterError(
      f'{self.name}: expected the addresses of processes from a Redis server, '
      f'received {clusters.quote(received)}. Check which program listens at '
      'this address, and give the address of a Redis server.'
    )

  def entry_name(self, index: int, count: int) -> str:
    """Returns the name of a process's entry for messages."""
    del count
    return f'{self.name}, process {index}'


def _without_password(url: str) -> str:
  """Returns the URL without password; '' if its end is not certain.

  An unescaped / ? or # in it would end the host instead.
  """
  found = _URL.fullmatch(url)
  return f'{found[1]}{found[2]}' if found else ''


def _check_options(url: str) -> None:
  """Raises for options of a URL that the package redis would not report."""
  scheme, _, rest = url.partition('://')
  known = _OPTIONS | (_TLS_OPTIONS if scheme == 'rediss' else set())
  given = parse.parse_qs(rest.partition('?')[2], keep_blank_values=True)
  if unknown := sorted({*given} - known):
    raise _url_refusal(
      f'the option {clusters.quote(unknown[0])}, not one of '
      f'{", ".join(sorted(known))}'
    )


def _url_refusal(received: str) -> clusters.ClusterError:
  return clusters.ClusterError(
    'cluster: expected redis:redis://HOST:PORT/DATABASE, or rediss:// for TLS, '
    f'received {received}. Correct the URL: give a password in the environment '
    'variable REDIS_PASSWORD, or write its / ? # @ as %2F %3F %23 %40.'
  )
