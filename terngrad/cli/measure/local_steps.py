"""Measures local steps in Keras's `fit`, relative to computing alone."""

import dataclasses
import os

from terngrad import errors
from terngrad import lazy
from terngrad.cli import children
from terngrad.cli import command
from terngrad.cli import flags
from terngrad.config import options
from terngrad.local import options as local_options

exchanges = lazy.module('terngrad.measure.processes.exchanges')
fit = lazy.module('terngrad.measure.keras.fit')
local_steps = lazy.module('terngrad.measure.keras.local_steps')
resolvers = lazy.module('terngrad.cluster.resolvers')
tables = lazy.module('terngrad.measure.tables')
tf = lazy.module('tensorflow')

USAGE = """\
{program}: measures local steps in fit, as ratios to computing alone.

  {program} --net=lenet --processes=2 --every=30

starts that many processes here. On several hosts start it on each by `terngrad
launch`, which sets TF_CONFIG:

  terngrad launch --hosts=10.0.0.1,10.0.0.2 --rank=0 \\
      --allow_insecure_network -- {program} --interface=eth0

Each process trains the net by stock fit with terngrad.keras.LocalSteps, on a
constant batch. Turns with and without exchanges alternate in one fit; a ratio
is that of a turn with exchanges to the turns beside it. A turn has --exchanges
times --every steps. Bytes are those that one exchange of process 0 takes: by
formula, and as its network interface counted them; the loopback counts all
processes, so its bytes are divided by their number. `load` is that of the
machine: other programs make both kinds of turns slower.
"""

option = options.option


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeasureLocalStepsFlags:
  """The flags of `terngrad measure local_steps`."""

  codec: tuple[str, ...] = option(
    ('error_feedback:decay=0.95+stc',),
    "Codes, as the trainers' --codec spells them; repeat for several.",
    'codes',
    repeated=True,
  )
  every: int = option(30, 'Steps from one exchange to the next.', 'run')
  overlap: str = option(
    local_options.DELAYED, f'One of {", ".join(local_options.OVERLAPS)}.', 'run'
  )
  batch_size: int = option(64, 'Examples of a process in a step.', 'data')
  net: str = option(
    'lenet',
    'keras_mnist, or a net of `terngrad measure exchange`.',
    'model',
  )
  optimizer: str = option('adam', 'Name of an optimizer of Keras.', 'model')
  processes: int = option(2, 'Processes to start here.', 'cluster')
  interface: str = option(
    '', 'Network interface whose bytes are counted; empty: all.', 'cluster'
  )
  exchanges: int = option(3, 'Exchanges in a turn.', 'run')
  rounds: int = option(5, 'Number of turns with exchanges.', 'run')
  threads: int = option(
    1, "Threads of an operation; 0: TensorFlow's choice.", 'run'
  )
  output: str = option('', 'Folder for measure_local_steps.csv.', 'run')


def act(values: MeasureLocalStepsFlags) -> int:
  """Prints the table, and writes it if --output names a directory."""
  command.at_least(1, values, 'batch_size', 'processes', 'exchanges', 'rounds')
  command.at_least(1, values, 'every')
  command.at_least(0, values, 'threads')
  if values.net != fit.EXAMPLE:
    options.choice('net', values.net, exchanges.NETS)
  options.choice('overlap', values.overlap, local_options.OVERLAPS)
  config = os.environ.get('TF_CONFIG')
  if values.processes > 1 and not config:
    return _start_all(values)
  with errors.as_config_error():
    cluster = resolvers.from_tf_config(config) if config else None
  if values.threads:
    tf.config.threading.set_intra_op_parallelism_threads(values.threads)
  settings = local_steps.LocalStepsSettings(
    **{
      name: getattr(values, name)
      for name in local_steps.LocalStepsSettings._fields
    }
  )
  with errors.as_config_error():
    measured = local_steps.table(values.codec, settings)
  if cluster and not cluster.is_chief:
    return command.DONE
  command.say(measured.round(4).to_string(index=False))
  if values.output:
    tables.write(values.output, 'measure_local_steps', measured)
  return command.DONE


def _start_all(values: MeasureLocalStepsFlags) -> int:
  """Starts all processes on this machine; returns the exit code."""
  given = flags.to_words(dataclasses.replace(values, interface='lo'))
  words = command.line_of('measure', 'local_steps', *given)
  return children.run_workers(words, values.processes)


COMMAND = command.Command(
  USAGE,
  MeasureLocalStepsFlags,
  act,
  required=('codec',),
  packages=('pandas',),
)
