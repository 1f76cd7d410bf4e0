"""No wait without an end: names the silent task and ends the process.

A call into TensorFlow that waits for another task cannot be cancelled, so the
end of the wait is the end of the process.
"""

import contextlib
import os
import re
import socket
import sys
import threading

from terngrad.exchange import cluster as clusters

_PING_SECONDS = 2.0
_TASK = re.compile(r'/job:(ps|worker)(?:/replica:0)?/task:([0-9]{1,6})')


@contextlib.contextmanager
def limit(cluster, seconds, what, end=None):
  """Lets a block take so long at most.

  Args:
    cluster: `cluster.Cluster`.
    seconds: float.
    what: the block's name, for the message.
    end: called with the message where the time is over; None writes it to
      standard error and ends the process with code 1.
  """

  def over():
    (end or _end)(complaint(cluster, seconds, what))

  timer = threading.Timer(seconds, over)
  timer.daemon = True
  timer.start()
  try:
    yield
  finally:
    timer.cancel()


def complaint(cluster, seconds, what):
  """What to say when `what` took longer than `seconds`; asks every task."""
  return f'{what}: {explain(cluster, f"it took more than {seconds:g} s")}'


def explain(cluster, reason):
  """What to say when tasks are lost; asks every one for a sign of life.

  Args:
    cluster: `cluster.Cluster`.
    reason: what TensorFlow said; tasks that it names are named.

  Returns:
    str.
  """
  mine = cluster.job, cluster.index
  named = {
    (job, int(index))
    for job, index in _TASK.findall(reason)
    if int(index) < len(cluster.jobs.get(job, ()))
  }
  lost = [
    f'{job} {index} ({address})'
    for job, addresses in cluster.jobs.items()
    for index, address in enumerate(addresses)
    if (job, index) != mine and ((job, index) in named or not answers(address))
  ]
  who = (
    f'no answer from {", ".join(lost)}'
    if lost
    else 'an answer from every task, so that one of them is slow'
  )
  first = reason.strip().splitlines()[0][:300] if reason.strip() else ''
  return (
    f'expected every task to take part, received {who} ({first}). Look at the '
    'log of that task, then start all tasks again by the same commands; the '
    'last checkpoint is good.'
  )


def answers(address):
  """Whether a TensorFlow server that is awake listens at 'host:port'.

  A stopped process has connections accepted by the kernel; only one that runs
  greets, as HTTP/2 servers do, without being asked.
  """
  host = clusters.host_of(address).strip('[]')
  port = int(address.rpartition(':')[2])
  try:
    with socket.create_connection((host, port), _PING_SECONDS) as connection:
      return connection.recv(1) != b''
  except OSError:
    return False


def _end(message):
  sys.stderr.write(f'error: {message}\n')
  sys.stderr.flush()
  os._exit(1)
