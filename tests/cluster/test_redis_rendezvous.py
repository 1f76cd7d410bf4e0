"""Processes that meet at a real Redis server."""

import concurrent.futures
import contextlib
import os
import shutil
import subprocess
import threading

import pytest

from terngrad.cli import ports
from terngrad.cluster import redis_rendezvous
from terngrad.cluster import rendezvous
from terngrad.cluster import spec

redis = pytest.importorskip('redis')
if not shutil.which('redis-server'):
  pytest.skip('needs redis-server', allow_module_level=True)

ADDRESSES = ('a:1', 'b:2', '[::1]:3')


@contextlib.contextmanager
def serving(folder, *more):
  """A server of its own; yields (its process, URL of its socket)."""
  path = folder / 'socket'
  process = subprocess.Popen(
    [
      *('redis-server', '--port', '0', '--unixsocket', path),
      *('--save', '', '--appendonly', 'no', '--dir', folder, *more),
    ],
    stdout=subprocess.PIPE,
    text=True,
  )
  try:
    for line in process.stdout:
      if 'eady to accept connections' in line:
        break
    else:
      raise AssertionError(f'redis-server ended with {process.wait()}')
    yield process, f'unix://{path}'
  finally:
    process.kill()
    process.stdout.close()
    process.wait()


@pytest.fixture(scope='module')
def url(tmp_path_factory):
  with serving(tmp_path_factory.mktemp('redis')) as (_, url):
    yield url


def join(url, run_id, index, count, address, timeout, password=None):
  location = redis_rendezvous.Server(url, run_id, password)
  return rendezvous.join(location, index, count, address, timeout)


def refused(*arguments, timeout=0, **more):
  with pytest.raises(spec.ClusterError) as caught:
    join(*arguments, timeout, **more)
  assert '\n' not in str(caught.value)
  return str(caught.value)


def meet_all(url, run_id, addresses=ADDRESSES, **more):
  count = len(addresses)
  with concurrent.futures.ThreadPoolExecutor(count) as pool:
    coming = [
      pool.submit(join, url, run_id, index, count, addresses[index], 60, **more)
      for index in reversed(range(count))
    ]
    return [one.result() for one in reversed(coming)]


def test_processes_get_all_addresses_in_the_order_of_their_indices(url):
  found = meet_all(url, 'run-7')
  assert [one.jobs for one in found] == [{'worker': ADDRESSES}] * 3
  assert [one.index for one in found] == [0, 1, 2]


def test_concurrent_and_restarted_runs_find_their_processes(url):
  first, second = meet_all(url, 'one'), meet_all(url, 'two', ('c:4', 'd:5'))
  assert second[0].jobs == {'worker': ('c:4', 'd:5')}
  assert meet_all(url, 'one') == first


def test_entries_expire(url):
  meet_all(url, 'for-a-day')
  with contextlib.closing(redis.Redis.from_url(url)) as client:
    seconds = client.ttl('terngrad:rendezvous:for-a-day')
  assert 23 * 3600 < seconds <= 24 * 3600


def test_one_of_two_processes_with_equal_indices_is_refused(url):
  """Whatever comes first: the server decides, in one script."""
  barrier = threading.Barrier(2)

  def join_once(address):
    barrier.wait()
    try:
      return join(url, 'twice', 0, 1, address, 60).address
    except spec.ClusterError as error:
      return str(error)

  with concurrent.futures.ThreadPoolExecutor(2) as pool:
    results = sorted(pool.map(join_once, ('a:1', 'b:2')), key=len)
  assert results[0] in ('a:1', 'b:2')
  assert (
    f'received {results[0]}: an earlier run wrote it, or two processes'
    in (results[1])
  )
  assert 'Give this run another --run_id' in results[1]


def test_a_run_of_another_size_is_refused(url):
  meet_all(url, 'of-three')
  message = refused(url, 'of-three', 0, 2, 'a:1')
  assert (
    'expected a run of 2 processes, received one of "3"'
    in message.replace("'", '"')
  )


def test_missing_processes_are_named(url):
  message = refused(url, 'alone', 1, 3, 'b:2')
  assert 'expected 3 processes in run alone at unix://' in message
  assert 'received 1; missing: 0, 2.' in message
  assert '--task_id=0' in message


@pytest.mark.parametrize(
  'value',
  ['', 'b', 'b:99999', '-o:2', '\x1b[2J:2', 'b:2\nc:3', 'x' * 10**6, 'b٢:2'],
)
def test_hostile_addresses_are_refused_and_named(url, value):
  with contextlib.closing(redis.Redis.from_url(url)) as client:
    client.delete('terngrad:rendezvous:hostile')
    entries = {'processes': '2', '1': value}
    client.hset('terngrad:rendezvous:hostile', mapping=entries)
  message = refused(url, 'hostile', 0, 2, 'a:1')
  assert 'process 1: expected' in message or 'missing: 1' in message
  assert len(message) < 1000


def test_a_key_of_another_type_is_refused(url):
  with contextlib.closing(redis.Redis.from_url(url)) as client:
    client.set('terngrad:rendezvous:text', 'mine')
  message = refused(url, 'text', 0, 2, 'a:1')
  assert 'WRONGTYPE' in message
  assert 'terngrad:rendezvous:text' in message


@pytest.mark.parametrize('run_id', ['', 'a b', 'a/b', 'ä', 'x' * 101, 'a\n'])
def test_invalid_run_ids_are_refused(run_id):
  assert 'run_id: expected' in refused('redis://localhost', run_id, 0, 1, 'a:1')


@pytest.mark.parametrize('url', ['', 'localhost', 'http://a', 'redis://[x'])
def test_invalid_urls_are_refused(url):
  assert 'expected redis:redis://HOST' in refused(url, 'a', 0, 1, 'a:1')


@pytest.mark.parametrize(
  ('url', 'option'),
  [
    ('redis://a?foo=bar', 'foo'),
    ('redis://a/0?ssl_cert_reqs=none', 'ssl_cert_reqs'),
    ('rediss://a?socket_keepalive_options=1', 'socket_keepalive_options'),
    ('redis://a?protocol=7&db=1', 'protocol'),
  ],
)
def test_options_that_the_package_does_not_check_are_refused(url, option):
  message = refused(url, 'a', 0, 1, 'a:1')
  assert (
    f"received the option '{option}', not one of client_name, db" in message
  )


def test_passwords_are_used_and_never_shown(tmp_path):
  with serving(tmp_path, '--requirepass', 'Secret1') as (_, url):
    meet_all(url, 'mine', password='Secret1')
    for wrong in (None, 'Secret2'):
      message = refused(url, 'mine', 0, 3, 'a:1', password=wrong)
      assert 'Check the password' in message and 'Secret' not in message
  for url in ('redis://u:Secret1@localhost:1/0', 'redis://u:Secret1@[x'):
    assert 'Secret' not in refused(url, 'mine', 0, 1, 'a:1')


def test_an_unreachable_server_is_named_after_the_time_limit(tmp_path):
  (port,) = ports.free(1)
  message = refused(f'redis://localhost:{port}/0', 'r', 0, 2, 'a:1', timeout=1)
  assert f'expected to reach run r at redis://localhost:{port}/0' in message
  assert 'within --start_timeout=1 seconds' in message


def test_a_server_that_ends_while_they_join_is_named_in_time(tmp_path):
  with serving(tmp_path) as (process, url):
    with contextlib.closing(redis.Redis.from_url(url)) as client:
      with concurrent.futures.ThreadPoolExecutor(1) as pool:
        joining = pool.submit(refused, url, 'cut', 0, 2, 'a:1', timeout=3)
        while not client.exists('terngrad:rendezvous:cut'):
          os.sched_yield()
        process.kill()
        message = joining.result()
  assert 'expected to reach run cut' in message


def test_a_server_that_comes_back_is_used(tmp_path):
  with serving(tmp_path) as (_, url):
    pass
  with concurrent.futures.ThreadPoolExecutor(1) as pool:
    joining = pool.submit(join, url, 'back', 0, 2, 'a:1', 60)
    with serving(tmp_path):
      assert join(url, 'back', 1, 2, 'b:2', 60).index == 1
      assert joining.result().index == 0


def test_tls_certificates_are_verified(tmp_path):
  if not shutil.which('openssl'):
    pytest.skip('needs openssl')
  for name in ('server', 'other'):
    subprocess.run(
      [
        *('openssl', 'req', '-x509', '-newkey', 'rsa:2048', '-nodes'),
        *('-subj', '/CN=localhost', '-addext', 'subjectAltName=DNS:localhost'),
        *(
          '-keyout',
          tmp_path / f'{name}.key',
          '-out',
          tmp_path / f'{name}.crt',
        ),
      ],
      check=True,
      capture_output=True,
    )
  (port,) = ports.free(1)
  with serving(
    *(tmp_path, '--tls-port', str(port), '--tls-auth-clients', 'no'),
    *('--tls-cert-file', tmp_path / 'server.crt'),
    *('--tls-key-file', tmp_path / 'server.key'),
    *('--tls-ca-cert-file', tmp_path / 'server.crt'),
  ):
    address = f'rediss://localhost:{port}/0?ssl_ca_certs={tmp_path}'
    found = meet_all(f'{address}/server.crt', 'tls')
    assert found[0].jobs == {'worker': ADDRESSES}
    message = refused(f'{address}/other.crt', 'tls', 0, 3, 'a:1', timeout=1)
  assert 'certificate' in message.lower()
