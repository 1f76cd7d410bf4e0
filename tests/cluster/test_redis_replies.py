"""What a process does with the replies of hostile and broken Redis servers."""

import contextlib
import random
import socket
import threading

import pytest

from terngrad.cluster import rendezvous
from terngrad.cluster import spec

pytest.importorskip('redis')

from redis import exceptions

from terngrad.cluster import redis_rendezvous
from terngrad.cluster import redis_replies


class FakeServer:
  """Answers EVAL by `answer(words)`, anything else by OK.

  An answer is bytes, or a function of the connection that sends them.
  """

  def __init__(self, answer):
    self._answer, self._open = answer, set()
    self._listening = socket.create_server(('127.0.0.1', 0))
    port = self._listening.getsockname()[1]
    self.url = f'redis://127.0.0.1:{port}/0'
    threading.Thread(target=self._accept, daemon=True).start()

  def close(self):
    for one in (self._listening, *self._open):
      with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
      one.close()

  def _accept(self):
    with contextlib.suppress(OSError):
      while True:
        connection, _ = self._listening.accept()
        self._open.add(connection)
        threading.Thread(
          target=self._serve, args=(connection,), daemon=True
        ).start()

  def _serve(self, connection):
    with (
      contextlib.suppress(OSError, ValueError),
      connection.makefile('rb') as requests,
    ):
      while line := requests.readline():
        words = []
        for _ in range(int(line[1:])):
          size = int(requests.readline()[1:])
          words.append(requests.read(size + 2)[:-2])
        answer = self._answer(words) if words[0] == b'EVAL' else b'+OK\r\n'
        if callable(answer):
          answer(connection)
        elif answer:
          connection.sendall(answer)
        else:
          return


@pytest.fixture
def served():
  with contextlib.ExitStack() as stack:

    def serve(answer):
      server = FakeServer(answer if callable(answer) else lambda _: answer)
      stack.callback(server.close)
      return server.url

    yield serve


@pytest.fixture
def impatient(monkeypatch):
  """A look has no longer than the meeting."""
  monkeypatch.setattr(rendezvous, '_MIN_READ_SECONDS', 0.0)


def join(url, timeout=600, count=2):
  location = redis_rendezvous.Server(url, 'r')
  return rendezvous.join(location, 0, count, 'a:1', timeout)


def refused(url, timeout=600):
  with pytest.raises(spec.ClusterError) as caught:
    join(url, timeout)
  message = str(caught.value)
  assert '\n' not in message and len(message) < 1000
  return message


def texts(*words):
  return b''.join(b'$%d\r\n%s\r\n' % (len(word), word) for word in words)


NO_FAILURE = b'*0\r\n'


def is_about_failures(words):
  """Whether a request reads failures, of which the key of a run has none."""
  return words[1] == redis_rendezvous._FAILED_SCRIPT.encode()


# Each is all that a server sends, and the message about it.
UNEXPECTED = {
  'a number': (b':7\r\n', '7'),
  'nothing': (b'$-1\r\n', 'None'),
  'no list': (b'*-1\r\n', 'None'),
  'a line': (b'+OK\r\n', "b'OK'"),
  'a text': (texts(b'2'), "b'2'"),
  'an empty list': (b'*0\r\n', '[]'),
  'numbers': (b'*3\r\n:2\r\n:1\r\n:2\r\n', '[2, 1, 2]'),
  'nothings': (b'*3\r\n' + b'$-1\r\n' * 3, '[None, None, None]'),
  'an error': (
    b'*3\r\n' + texts(b'2', b'a:1') + b'-ERR x\r\n',
    'ResponseError',
  ),
  'a list in it': (
    b'*3\r\n' + texts(b'2', b'a:1') + b'*0\r\n',
    'not a Redis reply',
  ),
  'lists in lists': (b'*1\r\n' * 10**5, 'not a Redis reply'),
  'too few': (b'*2\r\n' + texts(b'2', b'a:1'), "[b'2', b'a:1']"),
  'too many': (b'*4\r\n' + texts(b'2', b'a:1', b'b:2', b'c:3'), "b'c:3'"),
  'a text of 2 GB': (b'$2000000000\r\n', 'more than 65536 bytes'),
  'a text of 9 GB': (b'*3\r\n$9000000000\r\n', 'more than 65536 bytes'),
  'a line of 1 MB': (b'+' + b'x' * 10**6 + b'\r\n', 'more than 65536 bytes'),
  'much': (b'*30000\r\n' + b':1\r\n' * 30000, 'more than 65536 bytes'),
  'a huge number': (b':' + b'9' * 5000 + b'\r\n', 'not a Redis reply'),
  'a huge count': (b'*' + b'9' * 50 + b'\r\n', 'not a Redis reply'),
  'a negative size': (b'$-7\r\n', 'not a Redis reply'),
  'a negative count': (b'*-7\r\n', 'not a Redis reply'),
  'letters': (b'$abc\r\n', 'not a Redis reply'),
  'an underscore': (b'$1_0\r\n0123456789\r\n', 'not a Redis reply'),
  'a wrong size': (b'$2\r\nabcd\r\n', 'not have the stated length'),
  'an empty line': (b'\r\n', 'not a Redis reply'),
  'a map': (b'%1\r\n+a\r\n+b\r\n', 'not a Redis reply'),
  'a web page': (b'HTTP/1.1 400 Bad Request\r\n\r\n', 'HTTP/1.1 400'),
  'bytes': (bytes(reversed(range(256))) + b'\r\n', 'not a Redis reply'),
}


@pytest.mark.parametrize('case', UNEXPECTED)
def test_unexpected_replies_are_refused_in_one_line(served, case):
  reply, part = UNEXPECTED[case]
  message = refused(served(reply))
  assert 'expected the addresses of processes from a Redis server' in message
  assert part in message


@pytest.mark.parametrize(
  'reply',
  [b'-MOVED 1 b:2\r\n', b'-MOVED x\r\n', b'-ERR ' + b'x' * 9999 + b'\r\n'],
)
def test_errors_of_the_server_are_reported(served, reply):
  message = refused(served(reply))
  assert 'expected to store an address there, received:' in message
  assert reply[-6:-2].decode() in message or 'x' * 100 in message


def test_endless_replies_are_refused(served):
  def flood(connection):
    connection.sendall(b'+')
    while True:
      connection.sendall(b'x' * 65536)

  assert 'more than 65536 bytes' in refused(served(lambda _: flood))


def test_a_slow_reply_ends_at_the_time_limit(served, impatient):
  ended = threading.Event()

  def drip(connection):
    connection.sendall(b'$300\r\n')
    while not ended.wait(0.1):
      connection.sendall(b'x')

  try:
    message = refused(served(lambda _: drip), timeout=1)
  finally:
    ended.set()
  assert 'expected to reach run r at redis://127.0.0.1' in message
  assert 'within --start_timeout=1 seconds, received: no complete' in message


@pytest.mark.parametrize('reply', [b'*3\r\n$1\r\n2\r\n', None])
def test_an_incomplete_or_missing_reply_ends_at_the_time_limit(
  served, impatient, reply
):
  # None: it closes the connection.
  assert 'expected to reach run r at' in refused(served(reply), timeout=0.3)


def test_failed_requests_are_repeated(served, monkeypatch):
  monkeypatch.setattr(redis_replies, 'SECONDS', 0.1)
  broken = iter([b'*3\r\n$1\r\n2\r\n', None, b'-LOADING it loads\r\n'])

  def answer(words):
    if is_about_failures(words):
      return NO_FAILURE
    return next(broken, b'*3\r\n' + texts(b'2', b'a:1', b'b:2'))

  assert join(served(answer)).jobs == {'worker': ('a:1', 'b:2')}


def test_many_addresses_are_requested_in_parts(served):
  count, asked = 450, []
  name = '.'.join(['b' * 62] * 4)

  def answer(words):
    if is_about_failures(words):
      return NO_FAILURE
    first, last = (int(word) for word in words[-2:])
    asked.append((first, last))
    found = [b'%s:%d' % (name.encode(), i + 1) for i in range(1, count)]
    found = [b'a:1', *found][first : last + 1]
    return b'*%d\r\n' % (len(found) + 1) + texts(b'%d' % count, *found)

  found = join(served(answer), count=count).jobs['worker']
  assert asked == [(0, 199), (200, 399), (400, 449)]
  assert found[0] == 'a:1' and found[449] == f'{name}:450'


def read(content, piece):
  """What the parser makes of bytes that come in pieces."""

  class Connection:
    _sock, other = socket.socketpair()

  parser = redis_replies.Parser(65536)
  with Connection._sock, Connection.other as other:
    parser.on_connect(Connection)

    def send():
      with contextlib.suppress(OSError):
        for i in range(0, len(content), piece):
          other.sendall(content[i : i + piece])
        other.shutdown(socket.SHUT_WR)

    sending = threading.Thread(target=send)
    sending.start()
    try:
      return parser.read_response()
    finally:
      Connection._sock.shutdown(socket.SHUT_RDWR)
      sending.join()


@pytest.mark.parametrize('piece', [1, 2, 7, 4096])
def test_replies_may_arrive_in_pieces(piece):
  reply = b'*4\r\n' + texts(b'', b'a\r\nb', b'c' * 300) + b':-12\r\n'
  assert read(reply, piece) == [b'', b'a\r\nb', b'c' * 300, -12]


def test_random_bytes_raise_only_redis_errors():
  draw = random.Random(7)
  known = b'+-:$*\r\n0123456789OK'
  for _ in range(300):
    size = draw.randrange(1, 60)
    content = bytes(draw.choices(known, k=size)) + b'\r\n'
    with contextlib.suppress(exceptions.RedisError):
      read(content, 4096)


def test_a_reply_that_drips_ends_at_its_time_limit(monkeypatch):
  """Each byte arrives in time, but all together do not."""
  now, received = [0.0], []
  monkeypatch.setattr(redis_replies.time, 'monotonic', lambda: now[0])
  parser = redis_replies.Parser(65536)

  def receive(seconds):
    received.append(seconds)
    now[0] += 1
    parser._received += b'x'
    return True

  monkeypatch.setattr(parser, '_receive', receive)
  with pytest.raises(exceptions.TimeoutError, match='no complete reply within'):
    parser.read_response()
  assert received == [5, 4, 3, 2, 1]
