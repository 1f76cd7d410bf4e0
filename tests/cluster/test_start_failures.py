"""A process that fails before the run starts ends the others at once."""

import concurrent.futures
import contextlib
import os
import shutil
import threading

import pytest

from terngrad.cluster import file_rendezvous
from terngrad.cluster import rendezvous
from terngrad.cluster import spec
from terngrad.cluster import start_failures

# Many times what the test takes: it ends at once, or it fails.
LONG = 600
REASON = "train_data: expected a file, received 'x'. Correct it."


@pytest.fixture(params=['folder', 'redis'])
def location(request, tmp_path):
  """A function that connects a process to one location."""
  if request.param == 'folder':
    yield lambda: file_rendezvous.Folder(tmp_path / 'run')
    return
  if not shutil.which('redis-server'):
    pytest.skip('needs redis-server')
  from terngrad.cluster import redis_rendezvous
  from tests.cluster import test_redis_rendezvous as servers

  with servers.serving(tmp_path) as (_, url):
    yield lambda: redis_rendezvous.Server(url, 'run')


def meeting(location, index, count=2):
  return rendezvous.Meeting(location(), index, count, f'host:{index + 1}')


def no_end(message):
  raise AssertionError(message)


def fail(location, index, error=None):
  error = error or ValueError(REASON)
  with pytest.raises(ValueError) as caught:
    with meeting(location, index).share_failures(no_end):
      raise error
  assert caught.value is error


def test_waiting_processes_end_with_the_error_of_the_one_that_failed(location):
  with concurrent.futures.ThreadPoolExecutor(2) as pool:
    waiting = [pool.submit(meeting(location, i, 3).join, LONG) for i in (0, 2)]
    look = location()
    while sum(map(bool, look.sync(0, 3, 'host:1').values())) < 2:
      os.sched_yield()
    look.write_failure(1, 3, REASON)
    for one in waiting:
      with pytest.raises(start_failures.OtherProcessFailedError) as caught:
        one.result()
      message = str(caught.value)
      assert f'a failure of process 1: {ascii(REASON)}' in message
      assert message.endswith('Correct that, and start all processes again.')


def test_a_process_that_joins_after_the_failure_waits_for_a_restart_first(
  location, monkeypatch
):
  monkeypatch.setattr(start_failures, 'CLOCK_SECONDS', -LONG)
  monkeypatch.setattr(start_failures, 'RESTART_SECONDS', LONG)
  fail(location, 1)
  with concurrent.futures.ThreadPoolExecutor(1) as pool:
    first = pool.submit(meeting(location, 0).join, LONG)
    # It has started again.
    assert meeting(location, 1).join(LONG).index == 1
    assert first.result().index == 0
  fail(location, 1)
  monkeypatch.setattr(start_failures, 'RESTART_SECONDS', 0.0)
  with pytest.raises(start_failures.OtherProcessFailedError):
    meeting(location, 0).join(LONG)


def test_the_own_failure_and_old_ones_are_ignored(location, monkeypatch):
  fail(location, 0)
  found = location()
  found.sync(0, 2, 'host:1')
  assert found.read_failure(0, 2) is None
  found.write_failure(1, 2, REASON)
  assert found.read_failure(0, 2).reason == REASON
  assert found.read_failure(1, 2) is None


def test_a_failure_of_a_run_with_other_processes_is_not_seen(location):
  location().write_failure(1, 3, REASON)
  found = location()
  found.sync(0, 2, 'host:1')
  assert found.read_failure(0, 2) is None
  assert found.read_failure(0, 3).reason == REASON


def test_an_old_failure_in_a_folder_is_ignored(tmp_path):
  location = file_rendezvous.Folder(tmp_path)
  location.sync(0, 2, 'host:1')
  location.write_failure(1, 2, REASON)
  path = tmp_path / 'failed_1_of_2'
  now = path.stat().st_mtime
  for age, is_seen in ((0, True), (30, True), (90, False)):
    os.utime(path, (now - age, now - age))
    assert (location.read_failure(0, 2) is not None) == is_seen


def test_failures_at_a_redis_server_expire(tmp_path):
  redis = pytest.importorskip('redis')
  if not shutil.which('redis-server'):
    pytest.skip('needs redis-server')
  from terngrad.cluster import redis_rendezvous
  from tests.cluster import test_redis_rendezvous as servers

  with servers.serving(tmp_path) as (_, url):
    redis_rendezvous.Server(url, 'run').write_failure(1, 2, REASON)
    with contextlib.closing(redis.Redis.from_url(url)) as client:
      seconds = client.ttl('terngrad:rendezvous:run:failed:2')
    assert 0 < seconds <= start_failures.SHOWN_SECONDS


def test_a_failure_after_all_have_joined_ends_the_others_too(location):
  messages = []
  ended = threading.Event()

  def end(message):
    messages.append(message)
    ended.set()

  first, second = meeting(location, 0), meeting(location, 1)
  with concurrent.futures.ThreadPoolExecutor(2) as pool:
    list(pool.map(lambda one: one.join(LONG), (first, second)))
  with first.share_failures(end):
    with pytest.raises(ValueError, match='port'):
      with second.share_failures(no_end):
        raise ValueError('port: expected a free one')
    assert ended.wait(LONG)
  assert "process 1: 'port: expected a free one'" in messages[0]


def test_a_process_that_ends_for_another_reports_no_failure(location):
  other = start_failures.OtherProcessFailedError('process 2 failed')
  wrapped = ValueError('in other words')
  wrapped.__cause__ = other
  for error in (other, wrapped):
    fail(location, 1, error)
  reader = location()
  reader.sync(0, 2, 'host:1')
  assert reader.read_failure(0, 2) is None


def test_the_error_of_a_process_is_its_own_if_the_location_is_gone(tmp_path):
  (tmp_path / 'file').touch()
  fail(lambda: file_rendezvous.Folder(tmp_path / 'file' / 'run'), 0)


@pytest.mark.parametrize(
  ('text', 'stored'),
  [
    ('two\nlines \x1b[2J', 'two lines \\x1b[2J'),
    ('größer', 'gr\\xf6\\xdfer'),
    ('x' * 10**5, 'x' * 197 + '...'),
    ('', 'ValueError'),
  ],
)
def test_an_error_is_stored_as_a_short_line_of_ascii(text, stored):
  assert start_failures.shorten(ValueError(text)) == stored


@pytest.mark.parametrize(
  'content',
  [b'', b'no end', b'x' * 10**6 + b'\n', b'\n\n', b'\xff\xfe\n', b'a\nb\n'],
)
def test_hostile_failures_are_bounded_and_quoted(tmp_path, content):
  location = file_rendezvous.Folder(tmp_path)
  location.sync(0, 2, 'host:1')
  (tmp_path / 'failed_1_of_2').write_bytes(content)
  with pytest.raises(spec.ClusterError) as caught:
    rendezvous.join(location, 0, 2, 'host:1', LONG)
  message = str(caught.value)
  assert '\n' not in message and len(message) < 1000 and message.isascii()


def test_links_and_pipes_are_no_failures_to_read(tmp_path):
  location = file_rendezvous.Folder(tmp_path)
  location.sync(0, 2, 'host:1')
  path = tmp_path / 'failed_1_of_2'
  path.symlink_to('/etc/hostname')
  with pytest.raises(spec.ClusterError, match='a plain file to read'):
    location.read_failure(0, 2)
  path.unlink()
  os.mkfifo(path)
  with pytest.raises(spec.ClusterError, match='another kind of file'):
    location.read_failure(0, 2)


@pytest.mark.parametrize(
  'value', ['', '\x1b[2J', 'x' * 10**6, 'ä', 'two\nlines']
)
def test_hostile_failures_at_a_redis_server_are_bounded(tmp_path, value):
  redis = pytest.importorskip('redis')
  if not shutil.which('redis-server'):
    pytest.skip('needs redis-server')
  from terngrad.cluster import redis_rendezvous
  from tests.cluster import test_redis_rendezvous as servers

  with servers.serving(tmp_path) as (_, url):
    location = redis_rendezvous.Server(url, 'run')
    location.sync(0, 2, 'host:1')
    with contextlib.closing(redis.Redis.from_url(url)) as client:
      client.hset('terngrad:rendezvous:run:failed:2', '1', value)
      client.expire('terngrad:rendezvous:run:failed:2', 60)
    # The message of the failure or of the server, not that of the time limit.
    match = 'a failure of process 1|expected the addresses of processes'
    with pytest.raises(spec.ClusterError, match=match) as caught:
      rendezvous.join(location, 0, 2, 'host:1', LONG)
  message = str(caught.value)
  assert '\n' not in message and len(message) < 1000 and message.isascii()
