"""No wait without an end: names the silent task and ends the process.

A call into TensorFlow that waits for another task cannot be cancelled, so the
end of the wait is the end of the process.
"""

import concurrent.futures
import contextlib
import faulthandler
import json
import os
import re
import select
import socket
import subprocess
import sys
import threading

from terngrad.cluster import spec as clusters

# Of a process that ends because another one was lost: all can continue from the
# last checkpoint. Of sysexits.h, EX_TEMPFAIL; scripts/run_dist.sh knows it too.
LOST = 75
_PING_SECONDS = 2.0
# From the end of the time until all have been asked and the words are out.
_LAST_WORDS_SECONDS = 10.0
_TASK = re.compile(r'/job:(ps|worker)(?:/replica:0)?/task:([0-9]{1,6})')


@contextlib.contextmanager
def limit(cluster, seconds, what, end_with=None):
  """Lets a block take so long at most.

  Args:
    cluster: `cluster.Cluster`.
    seconds: float.
    what: the block's name, for the message.
    end_with: called with the message where the time is over; None for `end`.
  """

  def over():
    (end_with or end)(complaint(cluster, seconds, what))

  timer = threading.Timer(seconds, over)
  timer.daemon = True
  timer.start()
  try:
    yield
  finally:
    timer.cancel()


@contextlib.contextmanager
def limit_start(cluster, seconds, what):
  """`limit` for blocks in which TensorFlow holds Python's lock.

  While a process waits for the others to join, none of its Python threads
  runs. So another process has the last words, and a thread without Python
  ends this one, with code 1.

  Args:
    cluster: `cluster.Cluster`.
    seconds: float.
    what: the block's name, for the message.
  """
  request = [dict(cluster.jobs), cluster.job, cluster.index, seconds, what]
  with (
    open(os.devnull, 'w', encoding='ascii') as nowhere,
    subprocess.Popen(
      [sys.executable, '-m', __name__, json.dumps(request)],
      stdin=subprocess.PIPE,
      stdout=subprocess.DEVNULL,
    ),
  ):
    faulthandler.dump_traceback_later(
      seconds + _LAST_WORDS_SECONDS, exit=True, file=nowhere
    )
    try:
      yield
    finally:
      faulthandler.cancel_dump_traceback_later()


def _speak_for(request):
  """Says what `limit_start` asks for, unless standard input ends before."""
  jobs, job, index, seconds, what = json.loads(request)
  ended, _, _ = select.select([sys.stdin], [], [], seconds)
  if not ended:
    cluster = clusters.make(jobs, job, index)
    sys.stderr.write(f'error: {complaint(cluster, seconds, what)}\n')


def end(message):
  """Says why and ends the process with code `LOST`.

  Without Python's own way out: TensorFlow would wait there for lost tasks.
  """
  sys.stdout.flush()
  sys.stderr.write(f'error: {message}\n')
  sys.stderr.flush()
  os._exit(LOST)


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
  others = {
    (job, index): address
    for job, addresses in cluster.jobs.items()
    for index, address in enumerate(addresses)
    if (job, index) != mine
  }
  with concurrent.futures.ThreadPoolExecutor(64) as pool:
    awake = dict(zip(others, pool.map(answers, others.values()), strict=True))
  lost = [
    f'{job} {index} ({address})'
    for (job, index), address in others.items()
    if (job, index) in named or not awake[job, index]
  ]
  who = (
    f'no answer from {", ".join(lost)}'
    if lost
    else 'an answer from every task, so that one of them is slow'
  )
  first = reason.strip().splitlines()[0][:300] if reason.strip() else ''
  return (
    f'expected every task to take part, received {who} ({first}). Look at the '
    'log of that task, then start all tasks that have ended again by the same '
    'commands; the last checkpoint is good.'
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


if __name__ == '__main__':
  _speak_for(sys.argv[1])
