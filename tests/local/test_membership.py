"""The processes that remain after a loss agree on the same list."""

import concurrent.futures
import contextlib
import socket

import pytest

from terngrad.local import membership
from tests.exchange import processes


@pytest.fixture(autouse=True)
def short_grace(monkeypatch):
  monkeypatch.setattr(membership, 'GRACE', 1.0)
  monkeypatch.setattr(membership, '_POLL', 0.02)


def remaining(addresses, ranks):
  with concurrent.futures.ThreadPoolExecutor(len(ranks)) as threads:
    calls = [
      threads.submit(membership.remaining, addresses, rank) for rank in ranks
    ]
    return [call.result(timeout=60) for call in calls]


def test_all_that_remain_get_the_same_list():
  cases = [0, 2], [1, 2], [2], [0, 1, 2]
  free = processes.addresses(3 * len(cases))
  addresses = [free[i :: len(cases)] for i in range(len(cases))]
  # They wait at the same time.
  with concurrent.futures.ThreadPoolExecutor(len(cases)) as threads:
    for ranks, found in zip(
      cases, threads.map(remaining, addresses, cases), strict=True
    ):
      assert found == [ranks] * len(ranks)


def test_a_process_that_does_not_know_of_the_loss_is_waited_for():
  addresses = processes.addresses(3)
  host, port = addresses[1].split(':')
  # An old helper: it accepts, and says something else.
  with socket.create_server((host, int(port))) as old:
    old.settimeout(30)
    with concurrent.futures.ThreadPoolExecutor(3) as threads:
      first = threads.submit(membership.remaining, addresses, 0)
      for _ in range(40):
        connection, _ = old.accept()
        with connection, contextlib.suppress(OSError):
          connection.sendall(b'PRI * HTTP/2.0\r\n')
      assert not first.done()
      old.close()
      second = threads.submit(membership.remaining, addresses, 1)
      assert first.result(60) == second.result(60) == [0, 1]


def test_a_stranger_is_no_member():
  lines = b'', b'\xff\n', b'[]\n', b'{"rank": 7}\n', b'{"rank": "a"}\n'
  # They wait at the same time.
  with concurrent.futures.ThreadPoolExecutor(len(lines)) as threads:
    free = processes.addresses(2 * len(lines))
    found = threads.map(remaining_with_stranger, lines, free[::2], free[1::2])
    assert [*found] == [[0]] * len(lines)


def remaining_with_stranger(line, *addresses):
  """Those that remain of two, of which one sends this line."""
  host, port = addresses[0].split(':')
  with concurrent.futures.ThreadPoolExecutor(1) as threads:
    found = threads.submit(membership.remaining, addresses, 0)
    while not found.done():
      with contextlib.suppress(OSError):
        with socket.create_connection((host, int(port)), 1) as stranger:
          stranger.sendall(line)
          break
    return found.result(60)
