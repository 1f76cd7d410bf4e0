"""Measures steps of several processes: time, and bytes on the network."""

import dataclasses
import sys
from typing import TYPE_CHECKING

from absl import logging

from terngrad import errors
from terngrad import lazy
from terngrad.cli import children
from terngrad.cli import command
from terngrad.cli import flags
from terngrad.cli import ports
from terngrad.cluster import spec as clusters
from terngrad.config import cluster
from terngrad.config import options

if TYPE_CHECKING:
  import pandas as pd

algorithms = lazy.module('terngrad.exchange.algorithms')
exchange_table = lazy.module('terngrad.measure.processes.exchange_table')
exchanges = lazy.module('terngrad.measure.processes.exchanges')
peers = lazy.module('terngrad.measure.processes.peers')
tables = lazy.module('terngrad.measure.tables')
tf = lazy.module('tensorflow')

USAGE = """\
{program}: measures steps of several processes, time and bytes on the network.

  {program} --processes=2 --net=lenet --real

starts that many processes on this machine, and with --servers=1 a parameter
server too. On several hosts run the command once on each, with the same flags
except --task_id:

  {program} --worker_hosts=10.0.0.1:7000,10.0.0.2:7000 \\
      --task_id=0 --allow_insecure_network --net=single_column_alexnet

Cases are CODEC, CODEC@ALGORITHM or CODEC@ALGORITHM@BYTES, with auto, gather,
reduce, two_shot or slices for ALGORITHM, and BYTES instead of
--bytes_per_bucket. They take turns, round by round. A turn is a step that is
not timed, and --steps after it that are timed together: memory that is returned
and taken again makes some programs slower in every second or third step. A
ratio is the median of the ratios to the first case within a round. The case ddp
is PyTorch's DistributedDataParallel with its hooks: ddp, ddp:hook=fp16,
ddp:hook=bf16, ddp:hook=powersgd,rank=4. PyTorch runs in a separate process;
--peer_python names the Python of another environment, where PyTorch alone is
installed.

Without --real gradients are Gaussian numbers with the shapes of the net's
variables, and the timed step probes, encodes, sends, decodes and updates. With
--ps_hosts, and --job_name=ps or worker, cases are exchanged through parameter
servers, whatever their ALGORITHM; bytes are then those that worker 0 sends and
receives. Otherwise bytes are those of process 0: by formula, and as its network
interface counted them. The loopback counts all processes, so its bytes are
divided by their number.
"""

option = options.option


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeasureExchangeFlags:
  """The flags of `terngrad measure exchange`."""

  net: str = option(
    'single_column_alexnet', 'Net whose variables are exchanged.', 'model'
  )
  real: bool = option(
    False, 'Run forward and backward passes of the net too.', 'run'
  )
  case: tuple[str, ...] = option(
    ('identity', 'fp16', 'ternary', 'ternary@two_shot'),
    'CODEC, CODEC@ALGORITHM or CODEC@ALGORITHM@BYTES; repeat for several. The '
    'option workers=N of a codec is set automatically.',
    'codes',
    repeated=True,
  )
  bytes_per_bucket: int = option(
    cluster.BYTES_PER_BUCKET, 'As in the trainers.', 'codes'
  )
  peer_python: str = option(
    '',
    'Python interpreter with PyTorch for the case ddp, such as '
    'ENV/bin/python; empty: the one that runs this command.',
    'run',
  )
  batch: int = option(2, 'Examples per process.', 'data')
  threads: int = option(1, 'Threads per process.', 'run')
  rounds: int = option(5, 'Number of rounds for the median.', 'run')
  steps: int = option(
    6, 'Steps of a case in a row that are timed together in a round.', 'run'
  )
  processes: int = option(2, 'Processes to start here.', 'cluster')
  servers: int = option(0, 'Parameter servers to start here.', 'cluster')
  worker_hosts: str = option(
    '', 'host:port of every process; empty: start them here.', 'cluster'
  )
  ps_hosts: str = option(
    '', 'With --worker_hosts: host:port of every parameter server.', 'cluster'
  )
  job_name: str = option(
    'worker', 'Job of this process: ps or worker.', 'cluster'
  )
  task_id: int = option(0, 'Index of this process in its job.', 'cluster')
  allow_insecure_network: bool = option(False, 'As in the trainers.', 'cluster')
  bandwidth: float = option(
    cluster.ClusterOptions.bandwidth,
    'Bandwidth of a process in bits per second, by which auto chooses an '
    'algorithm.',
    'cluster',
  )
  latency: float = option(
    cluster.ClusterOptions.latency,
    'Latency between two processes in seconds, for the same choice.',
    'cluster',
  )
  interface: str = option(
    '', 'Network interface whose bytes are counted; empty: all.', 'cluster'
  )
  output: str = option(
    '', 'Folder for measure_exchange.csv and measure_exchange.png.', 'run'
  )


def act(values: MeasureExchangeFlags) -> int:
  """Measures, and prints the table on the chief; or starts all processes."""
  # TensorFlow's strategy logs several lines at its creation.
  logging.set_verbosity(logging.WARNING)
  cases = [
    exchange_table.parse(text, values.bytes_per_bucket) for text in values.case
  ]
  options.choice('net', values.net, exchanges.NETS)
  command.at_least(1, values, 'bandwidth')
  command.at_least(0, values, 'latency', 'servers', 'threads')
  command.at_least(1, values, 'steps', 'rounds', 'batch', 'processes')
  rivals = [case.codec for case in cases if peers.is_peer(case.codec)]
  for text in rivals:
    peers.parse(text)
  if rivals and (not values.worker_hosts or values.job_name == 'worker'):
    peers.check(values.peer_python, values.net, values.real)
  if not values.worker_hosts:
    return _start_all(values)
  with errors.as_config_error():
    tasks = clusters.from_flags(
      values.ps_hosts, values.worker_hosts, values.job_name, values.task_id
    )
    warning = clusters.check_network(tasks, values.allow_insecure_network)
  sys.stderr.write(f'{warning}\n')
  tf.config.threading.set_intra_op_parallelism_threads(values.threads)
  settings = exchange_table.Settings(
    values.net,
    values.real,
    values.batch,
    values.rounds,
    values.steps,
    values.interface,
    algorithms.Link(values.bandwidth, values.latency),
    values.peer_python,
  )
  table = exchange_table.measure(tasks, cases, settings)
  if tasks.is_chief:
    _report(values, table)
  return command.DONE


def _start_all(values: MeasureExchangeFlags) -> int:
  """Starts all processes on this machine; returns the exit code."""
  count = values.processes
  hosts = [f'127.0.0.1:{port}' for port in ports.free(count + values.servers)]
  given = dataclasses.replace(
    values,
    interface='lo',
    worker_hosts=','.join(hosts[:count]),
    ps_hosts=','.join(hosts[count:]),
  )
  words = command.line_of('measure', 'exchange', *flags.to_words(given))
  counts = {'worker': count, 'ps': values.servers}
  return children.run(
    [
      children.ChildCommand(
        [*words, f'--job_name={job}', f'--task_id={i}'], f'{job} {i}'
      )
      for job, size in counts.items()
      for i in range(size)
    ],
    'Leave out one --case after the other to find the one that crashes. If it '
    'is ddp, give PyTorch an environment of its own: --peer_python=PATH.',
  )


def _report(values: MeasureExchangeFlags, table: 'pd.DataFrame') -> None:
  passes = f'batch {values.batch} per process' if values.real else 'no passes'
  command.say(
    f'{values.net}, {passes}, {values.threads} threads per process, medians of '
    f'{values.rounds} rounds of {values.steps} steps'
  )
  shown = table.drop(columns=[*exchange_table.CONDITIONS])
  command.say(shown.round(4).to_string(index=False))
  if values.output:
    title = f'{values.net}, {table["processes"][0]} processes'
    chart = exchange_table.chart(table, title)
    tables.write(values.output, 'measure_exchange', table, chart)


# Pending calls of TensorFlow's servers would abort Python's shutdown.
COMMAND = command.Command(
  USAGE,
  MeasureExchangeFlags,
  act,
  ends_process=True,
  packages=('pandas', 'matplotlib'),
)
