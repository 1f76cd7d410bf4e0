"""Measures steps of Keras's `fit`, relative to `fit` without compression."""

import dataclasses
import os

from terngrad import errors
from terngrad import lazy
from terngrad.cli import children
from terngrad.cli import command
from terngrad.cli import flags
from terngrad.config import options

devices = lazy.module('terngrad.cluster.devices')
exchanges = lazy.module('terngrad.measure.processes.exchanges')
fit = lazy.module('terngrad.measure.keras.fit')
resolvers = lazy.module('terngrad.cluster.resolvers')
tables = lazy.module('terngrad.measure.tables')
tf = lazy.module('tensorflow')

USAGE = """\
{program}: measures steps of Keras's fit, as ratios within one run.

  {program} --codec=ternary --codec=error_feedback+topk
  {program} --net=lenet --optimizer=sgd --processes=2 --batch_size=8

The net of Keras's MNIST example, or another, is trained under MirroredStrategy
on a constant batch: with the optimizer alone, and with CompressedOptimizer
around it. Fits take turns, round by round; ratios are relative to the optimizer
alone in the same round. `MB sent` is the traffic per step of this host's
network interface, or of all processes here for the loopback; `equal` means that
all replicas ended bit-identical.

--processes starts that many processes here, under MultiWorkerMirroredStrategy.
If TF_CONFIG is set, this is one of the processes that it lists: start the same
command on each host; the first one prints the table.
"""

option = options.option


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeasureFitFlags:
  """The flags of `terngrad measure fit`."""

  codec: tuple[str, ...] = option(
    ('identity', 'ternary', 'error_feedback+topk:ratio=0.01'),
    "Codes, as the trainers' --codec spells them; repeat for several.",
    'codes',
    repeated=True,
  )
  batch_size: int = option(128, 'Examples per step, of all replicas.', 'data')
  net: str = option(
    'keras_mnist',
    'keras_mnist, or a net of `terngrad measure exchange`.',
    'model',
  )
  optimizer: str = option('adam', 'Name of an optimizer of Keras.', 'model')
  num_gpus: int = option(2, 'Devices, with one replica each.', 'devices')
  processes: int = option(
    0,
    'Processes to start here, with one replica each; 0: use --num_gpus.',
    'cluster',
  )
  interface: str = option(
    '', 'Network interface whose bytes are counted; empty: all.', 'cluster'
  )
  rounds: int = option(7, 'Number of rounds for the median.', 'run')
  steps: int = option(40, 'Steps of each fit.', 'run')
  threads: int = option(
    0, "Threads of an operation; 0: TensorFlow's choice.", 'run'
  )
  output: str = option('', 'Folder for measure_fit.csv.', 'run')


def act(values: MeasureFitFlags) -> int:
  """Prints the table, and writes it if --output names a directory."""
  command.at_least(1, values, 'batch_size', 'num_gpus', 'rounds', 'steps')
  command.at_least(0, values, 'processes', 'threads')
  if values.net != fit.EXAMPLE:
    options.choice('net', values.net, exchanges.NETS)
  config = os.environ.get('TF_CONFIG')
  if values.processes and not config:
    return _start_all(values)
  with errors.as_config_error():
    cluster = resolvers.from_tf_config(config) if config else None
  if values.threads:
    tf.config.threading.set_intra_op_parallelism_threads(values.threads)
  measured = fit.table(
    values.codec,
    devices.tower_devices(values.num_gpus) if not cluster else (),
    fit.FitSettings(
      net=values.net,
      optimizer=values.optimizer,
      batch_size=values.batch_size,
      rounds=values.rounds,
      steps=values.steps,
      interface=values.interface,
    ),
  )
  if cluster and not cluster.is_chief:
    return command.DONE
  command.say(measured.round(3).to_string(index=False))
  if values.output:
    tables.write(values.output, 'measure_fit', measured)
  return command.DONE


def _start_all(values: MeasureFitFlags) -> int:
  """Starts all processes on this machine; returns the exit code."""
  given = flags.to_words(dataclasses.replace(values, interface='lo'))
  words = command.line_of('measure', 'fit', *given)
  return children.run_workers(words, values.processes)


COMMAND = command.Command(
  USAGE, MeasureFitFlags, act, required=('codec',), packages=('pandas',)
)
