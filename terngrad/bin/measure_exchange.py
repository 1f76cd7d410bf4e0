r"""Measures steps of several processes: time, and bytes on the network.

  python -m terngrad.bin.measure_exchange --processes=2 --net=lenet --real

starts so many processes on this machine, and with --servers=1 a ps beside them.
On several hosts start it once on each, with the same flags but --task_id:

  python -m terngrad.bin.measure_exchange --worker_hosts=10.0.0.1:7000,\
10.0.0.2:7000 --task_id=0 --allow_insecure_network --net=single_column_alexnet

Cases are CODEC, CODEC@WAY or CODEC@WAY@BYTES, WAY one of auto, gather, reduce,
two_shot, slices, two_shot_ternary and BYTES in place of --bytes_per_bucket;
they take turns, round by round, and a ratio is the median of the ratios to the
first case within a round.
Without --real gradients are Gaussian numbers of the net's shapes: what is timed
is probing, encoding, moving, decoding and updating.
With --ps_hosts too, and --job_name=ps or worker, cases are exchanged by
parameter servers, whatever their WAY; bytes are then those of worker 0 both
ways.
Bytes are of process 0: what it sends by formula, and what its interface sent;
the loopback counts those of all processes, so they are divided by them.
"""

import os
import statistics
import subprocess
import sys

import pandas as pd
import tensorflow as tf
from absl import app
from absl import flags
from absl import logging
from matplotlib import figure

from slim.nets import factory as nets
from terngrad.cluster import cluster as clusters
from terngrad.cluster import tasks
from terngrad.config import cluster_config
from terngrad.exchange import group as groups
from terngrad.exchange import ways
from terngrad.measure import exchanges
from terngrad.measure import servers
from terngrad.measure import timing
from terngrad.program import ports

NET = flags.DEFINE_string('net', exchanges.RACE, 'Net whose variables travel.')
REAL = flags.DEFINE_bool('real', False, 'Also forward and backward passes.')
CASES = flags.DEFINE_multi_string(
  'case',
  ['identity', 'fp16', 'ternary', 'ternary@two_shot'],
  'CODEC, CODEC@WAY or CODEC@WAY@BYTES; repeat for several. workers=N in it is '
  'filled in.',
)
BYTES = flags.DEFINE_integer(
  'bytes_per_bucket', cluster_config.BYTES_PER_BUCKET, 'See mnist_train --help.'
)
BATCH = flags.DEFINE_integer('batch', 2, 'Examples a process.')
THREADS = flags.DEFINE_integer('threads', 1, 'Threads a process.')
ROUNDS = flags.DEFINE_integer('rounds', 5, 'Rounds to take the median of.')
PROCESSES = flags.DEFINE_integer('processes', 2, 'Processes to start here.')
SERVERS = flags.DEFINE_integer('servers', 0, 'Parameter servers to start here.')
WORKER_HOSTS = flags.DEFINE_string(
  'worker_hosts', '', 'host:port of every process; empty: start them here.'
)
PS_HOSTS = flags.DEFINE_string(
  'ps_hosts', '', 'host:port of every parameter server, beside --worker_hosts.'
)
JOB_NAME = flags.DEFINE_string('job_name', 'worker', 'ps or worker.')
TASK_ID = flags.DEFINE_integer('task_id', 0, 'Place of this process there.')
ALLOW = flags.DEFINE_bool(
  'allow_insecure_network', False, 'See mnist_train --help.'
)
INTERFACE = flags.DEFINE_string(
  'interface', '', 'Network interface whose bytes are counted; empty: all.'
)
OUTPUT = flags.DEFINE_string(
  'output', '', 'Folder for measure_exchange.csv and measure_exchange.png.'
)
# Seconds to wait for a task to come, and for a sign of its life.
_TIMEOUT = 300
# Seconds that a task serves a chief that never ends.
_LONGEST = 86400


def main(arguments):
  """Measures and prints; returns the exit code."""
  if len(arguments) > 1:
    raise app.UsageError(f'Expected flags only, received {arguments[1]!r}.')
  # TensorFlow's strategy says at length that it is there.
  logging.set_verbosity(logging.WARNING)
  try:
    cases = [_parse(text) for text in CASES.value]
    _check_net()
    if not WORKER_HOSTS.value:
      return _start_all()
    cluster = clusters.from_flags(
      PS_HOSTS.value, WORKER_HOSTS.value, JOB_NAME.value, TASK_ID.value
    )
    sys.stderr.write(f'{clusters.check_network(cluster, ALLOW.value)}\n')
    tf.config.threading.set_intra_op_parallelism_threads(THREADS.value)
    if 'ps' not in cluster.jobs:
      table = _measure_collectives(cluster, cases)
    elif cluster.is_chief:
      table = _measure_servers(cluster, cases)
    else:
      servers.serve(cluster, _LONGEST)
  except ValueError as error:
    sys.stderr.write(f'error: {error}\n')
    return 2
  except tasks.LostError as error:
    sys.stderr.write(f'error: {error}\n')
    return 1
  if cluster.is_chief:
    _report(table)
  return 0


def _parse(text):
  """(text, codec, way, bytes) of a case."""
  codec, *more = text.split('@')
  way, size = (*more, *(ways.AUTO, str(BYTES.value))[len(more) :])[:2]
  known = (ways.AUTO, *ways.WAYS)
  if way not in known or not size.isdecimal() or len(more) > 2:
    raise ValueError(
      'case: expected CODEC, CODEC@WAY or CODEC@WAY@BYTES with a way of '
      f'{", ".join(known)}, received {text!r}. Write it as '
      'ternary@gather@0.'
    )
  return text, codec, way, int(size)


def _check_net():
  known = [exchanges.RACE, *nets.NETS]
  if NET.value not in known:
    raise ValueError(
      f'net: expected one of {", ".join(known)}, received {NET.value!r}.'
    )


def _start_all():
  """Starts the processes of this machine; the worst exit code."""
  count = PROCESSES.value
  hosts = [f'127.0.0.1:{port}' for port in ports.free(count + SERVERS.value)]
  words = [sys.executable, '-m', 'terngrad.bin.measure_exchange', *sys.argv[1:]]
  words += [f'--worker_hosts={",".join(hosts[:count])}', '--interface=lo']
  words += [f'--ps_hosts={",".join(hosts[count:])}']
  tasks_here = [('worker', i) for i in range(count)]
  tasks_here += [('ps', i) for i in range(SERVERS.value)]
  others = [
    subprocess.Popen([*words, f'--job_name={job}', f'--task_id={index}'])
    for job, index in tasks_here
  ]
  try:
    return max(abs(other.wait()) for other in others)
  finally:
    for other in others:
      other.kill()


def _measure_collectives(cluster, cases):
  group = groups.Group(cluster, _TIMEOUT)
  what = exchanges.subject(NET.value, REAL.value)
  built = {
    text: exchanges.case(
      what, group, _for(codec, group.size), way, BATCH.value, size
    )
    for text, codec, way, size in cases
  }
  return _measure(built, what, group.size, both_ways=False)


def _measure_servers(cluster, cases):
  servers.join(cluster, _TIMEOUT)
  try:
    what = exchanges.subject(NET.value, REAL.value)
    count = len(cluster.jobs['worker'])
    built = {
      text: servers.case(what, cluster, _for(codec, count), BATCH.value, size)
      for text, codec, _, size in cases
    }
    return _measure(built, what, count, both_ways=True)
  finally:
    servers.release(cluster)


def _for(codec, workers):
  return codec.replace('workers=N', f'workers={workers}')


def _bytes(both_ways):
  """What the interface has sent so far, or sent and received."""
  # The loopback receives what it sends.
  both_ways = both_ways and INTERFACE.value != 'lo'
  received, sent = exchanges.interface_bytes(INTERFACE.value)
  return sent + received if both_ways else sent


def _measure(built, what, count, both_ways):
  """The table of cases, from a dict of text to `exchanges.Case`."""
  sent = {}
  for text, one in built.items():
    one.step()  # builds its program
    before = _bytes(both_ways)
    for _ in range(ROUNDS.value):
      one.step()
    after = _bytes(both_ways)
    shared_by = count if INTERFACE.value == 'lo' else 1
    sent[text] = (after - before) / ROUNDS.value / shared_by
  seconds = timing.in_turns(
    {text: (one.step, 1) for text, one in built.items()}, ROUNDS.value
  )
  first = next(iter(built))
  elements = sum(tf.TensorShape(s).num_elements() for s in what.shapes)
  return pd.DataFrame(
    {
      'case': text,
      'ways': '+'.join(one.ways),
      'processes': count,
      'elements': elements,
      'milliseconds': 1e3 * statistics.median(seconds[text]),
      f'to {first}': timing.ratio(seconds, text, first),
      'payload_bytes': one.payload,
      'interface_bytes': sent[text],
      'overhead': sent[text] / one.payload - 1,
      'bits_per_element': 8 * one.payload / elements,
    }
    for text, one in built.items()
  )


def _report(table):
  passes = f'batch {BATCH.value} a process' if REAL.value else 'no passes'
  print(
    f'{NET.value}, {passes}, {THREADS.value} threads a process, medians of '
    f'{ROUNDS.value} rounds'
  )
  with pd.option_context('display.width', 200, 'display.max_columns', 20):
    print(table.round(4).to_string(index=False))
  if not OUTPUT.value:
    return
  os.makedirs(OUTPUT.value, exist_ok=True)
  table.to_csv(os.path.join(OUTPUT.value, 'measure_exchange.csv'), index=False)
  chart = figure.Figure(figsize=(8, 4), layout='constrained')
  left, right = chart.subplots(1, 2, sharey=True)
  left.barh(table['case'], table['milliseconds'])
  left.set_xlabel('milliseconds a step')
  right.barh(table['case'], table['interface_bytes'] / 1e6)
  right.set_xlabel('MB sent a step and process')
  chart.suptitle(f'{NET.value}, {table["processes"][0]} processes')
  chart.savefig(os.path.join(OUTPUT.value, 'measure_exchange.png'))


if __name__ == '__main__':
  sys.exit(app.run(main))
