"""The processes that remain after a loss agree on the same list."""

import concurrent.futures
import contextlib
import socket
import threading
import time

import pytest

from terngrad.local import membership
from tests.exchange import processes


@pytest.fixture(autouse=True)
def short_grace(monkeypatch):
  monkeypatch.setattr(membership, 'GRACE', 1.0)
  monkeypatch.setattr(membership, '_POLL', 0.02)


def start(function, *arguments):
  """Calls a function in a thread that does not keep a failed test waiting."""
  call = concurrent.futures.Future()

  def run():
    try:
      call.set_result(function(*arguments))
    except BaseException as error:
      call.set_exception(error)

  threading.Thread(target=run, daemon=True).start()
  return call


def search(*arguments):
  return start(membership.remaining, *arguments)


def results(function, *lists):
  """Calls a function at the same time with the elements of lists."""
  calls = [
    start(function, *arguments) for arguments in zip(*lists, strict=True)
  ]
  return [call.result(60) for call in calls]


def remaining(addresses, ranks):
  calls = [search(addresses, rank) for rank in ranks]
  return [call.result(60) for call in calls]


def test_all_that_remain_get_the_same_list():
  cases = [0, 2], [1, 2], [2], [0, 1, 2]
  free = processes.addresses(3 * len(cases))
  addresses = [free[i :: len(cases)] for i in range(len(cases))]
  found = results(remaining, addresses, cases)
  assert found == [[ranks] * len(ranks) for ranks in cases]


def wait_for_grace(address):
  """Waits until a process that listens would count silent ones as lost.

  It closes a connection that says nothing after `GRACE` seconds. Two in turns
  and not many short ones, each of which takes a port that may be needed.
  """
  for _ in range(2):
    with connect(address) as silent:
      assert silent.recv(1) == b''


def test_before_its_first_exchange_a_process_waits_for_those_that_are_late():
  addresses = processes.addresses(2)
  first = search(addresses, 0, True)
  wait_for_grace(addresses[0])
  assert not first.done()
  second = search(addresses, 1, True)
  assert first.result(60) == second.result(60) == [0, 1]


@pytest.mark.parametrize('returned', [0, 1])
def test_a_process_that_is_back_before_the_others_know_is_no_loss(
  returned,
):
  addresses = processes.addresses(2)
  back = search(addresses, returned, True)
  wait_for_grace(addresses[returned])
  other = search(addresses, 1 - returned)
  assert back.result(60) == other.result(60) == [0, 1]


def test_a_process_that_was_left_out_does_not_come_back_with_another():
  addresses = processes.addresses(4)
  # 3 was left out before. It and 0 are started again.
  left_out = search(addresses, 3, True)
  back = search(addresses, 0, True)
  wait_for_grace(addresses[0])
  others = [search(addresses[:3], rank) for rank in (1, 2)]
  for call in (back, *others):
    assert call.result(60) == [0, 1, 2]
  assert not left_out.done()
  # Lets it end.
  again = [search(addresses, rank, True) for rank in range(3)]
  for call in (left_out, *again):
    assert call.result(60) == [0, 1, 2, 3]


def test_a_process_that_does_not_know_of_a_loss_learns_of_it():
  addresses = processes.addresses(3)
  # Both begin again; 2 was lost before, which only 1 knows.
  first = search(addresses, 0, True)
  second = search(addresses[:2], 1, True)
  assert first.result(60) == second.result(60) == [0, 1]


def test_a_process_that_is_back_does_not_go_on_alone():
  addresses = processes.addresses(2)
  back = search(addresses, 1, True)
  # The other one notices the loss, and is lost itself.
  with connect(addresses[1]) as connection:
    connection.sendall(' '.join(addresses).encode() + b'\n')
  wait_for_grace(addresses[1])
  assert not back.done()
  other = search(addresses, 0, True)
  assert back.result(60) == other.result(60) == [0, 1]


def test_one_that_vanished_takes_no_time_from_the_others():
  addresses = processes.addresses(3)
  back = search(addresses, 0, True)
  with connect(addresses[0]) as connection:
    words = addresses[1], addresses[0], addresses[2]
    connection.sendall(' '.join(words).encode() + b'\n')
  wait_for_grace(addresses[0])
  others = [search(addresses, rank) for rank in (1, 2)]
  for call in (back, *others):
    assert call.result(60) == [0, 1, 2]


def test_a_process_that_ends_for_some_and_is_lost_for_others_is_left_out():
  addresses = processes.addresses(3)
  with (
    listen(addresses[2]),
  ):
    # Its port accepts connections, as one that forks would leave it.
    lost = search(addresses, 1)
    ended = search(addresses[:2], 0)
    assert lost.result(60) == ended.result(60) == [0, 1]


def test_a_process_that_is_back_learns_of_another_loss():
  addresses = processes.addresses(3)
  # The first one, which decides, believes to begin.
  back = search(addresses, 0, True)
  other = search(addresses, 1)
  assert back.result(60) == other.result(60) == [0, 1]


def test_a_process_that_waits_for_long_names_those_that_are_missing(
  monkeypatch, caplog
):
  monkeypatch.setattr(membership, '_PATIENCE', 0.0)
  addresses = processes.addresses(2)
  found = search(addresses, 0)
  assert found.result(60) == [0]
  assert f'waiting for {addresses[1]}. Start' in caplog.text


def be_another(old, words=b''):
  """Answers as a helper that knows of no loss, until others count as lost."""
  old.accept()[0].close()
  end = time.monotonic() + 1.5 * membership.GRACE
  is_over = False
  while not is_over:
    # The last answer is to one that has looked at all others since.
    is_over = time.monotonic() > end
    connection, _ = old.accept()
    with connection, contextlib.suppress(OSError):
      connection.sendall(words)


def test_a_process_that_does_not_know_of_the_loss_is_waited_for(monkeypatch):
  addresses = processes.addresses(3)
  # An old helper: it accepts, and says something else.
  with listen(addresses[1]) as old:
    first = search(addresses, 0)
    be_another(old, b'PRI * HTTP/2.0\r\n')
    assert not first.done()
    # The other process may start late.
    monkeypatch.setattr(membership, 'GRACE', 600.0)
    old.close()
    second = search(addresses, 1)
    assert first.result(60) == second.result(60) == [0, 1]


def listen(address):
  """A socket where the port of another process is."""
  host, port = address.split(':')
  server = socket.create_server((host, int(port)))
  server.settimeout(30)
  return server


def connect(address):
  """Connects as soon as the process at this address listens."""
  host, port = address.split(':')
  for _ in range(10**6):
    with contextlib.suppress(OSError):
      return socket.create_connection((host, int(port)), 30)
  raise TimeoutError(address)


def test_a_process_that_learns_last_of_two_losses_is_waited_for(monkeypatch):
  addresses = processes.addresses(4)
  with (
    listen(addresses[3]) as old,
  ):
    first = search(addresses, 2)
    # Until process 2 has noticed that 0 and 1 are lost.
    be_another(old)
    monkeypatch.setattr(membership, 'GRACE', 600.0)
    old.close()
    last = search(addresses, 3)
    assert first.result(60) == last.result(60) == [2, 3]


def test_the_next_process_decides_if_the_first_is_lost_meanwhile():
  addresses = processes.addresses(3)
  with (
    listen(addresses[0]) as first,
    contextlib.ExitStack() as stack,
  ):
    calls = []
    for rank in (1, 2):
      calls.append(search(addresses, rank))
      stack.enter_context(first.accept()[0])
    first.close()
    stack.close()
    assert [call.result(60) for call in calls] == [[1, 2]] * 2


def test_a_list_is_complete_and_contains_sender_and_receiver():
  names = 'a:1 {0}\n', '{0} a:1\n', '{1} a:1\n', '{0} {1}'
  # All in one call: calls at the same time can get the same free port.
  addresses = processes.addresses(2 * len(names))
  pairs = zip(addresses[::2], addresses[1::2], strict=True)
  found = results(remaining_with_list, names, [*pairs])
  assert found == [[1]] * len(names)


def remaining_with_list(line, addresses):
  """What process 1 finds that gets this line from process 0."""
  with (
    listen(addresses[0]) as first,
  ):
    found = search(addresses, 1)
    with first.accept()[0] as connection:
      connection.recv(100)
      connection.sendall(line.format(*addresses).encode())
    first.close()
    return found.result(60)


def test_idle_connections_do_not_delay_others():
  addresses = processes.addresses(2)
  with (
    contextlib.ExitStack() as stack,
  ):
    first = search(addresses, 0)
    for _ in range(3):
      stack.enter_context(connect(addresses[0]))
    second = search(addresses, 1)
    assert first.result(60) == second.result(60) == [0, 1]


def test_a_connection_that_does_not_register_in_time_is_closed():
  addresses = processes.addresses(2)
  with listen(addresses[1]) as old:
    found = search(addresses, 0)
    with connect(addresses[0]) as stranger, pytest.raises(ConnectionError):
      for _ in range(10**4):
        old.accept()[0].close()
        stranger.sendall(b'x')
  assert found.result(60) == [0]


def test_a_host_without_power_ends_a_connection():
  with socket.create_server(('127.0.0.1', 0)) as server:
    with socket.create_connection(server.getsockname()) as connection:
      membership._AddressReader(connection)
      assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
      idle = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
      assert idle <= 30


def test_a_stranger_is_no_member():
  lines = b'', b'\xff\n', b'{"rank": 1.0}\n', b'[' * 4000, b' \n', b'a:1\n'
  free = processes.addresses(2 * len(lines))
  found = results(remaining_with_stranger, lines, free[::2], free[1::2])
  assert found == [[0]] * len(lines)


def remaining_with_stranger(line, *addresses):
  """Those that remain of two, of which one sends this line."""
  found = search(addresses, 0)
  with connect(addresses[0]) as stranger:
    stranger.sendall(line)
  return found.result(60)
