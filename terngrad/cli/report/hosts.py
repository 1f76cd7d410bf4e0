"""Predicts what the steps of finished runs would take on several hosts."""

import dataclasses

from terngrad import lazy
from terngrad.cli import command
from terngrad.cli import flags
from terngrad.config import options

exchanges = lazy.module('terngrad.measure.processes.exchanges')
hosts = lazy.module('terngrad.measure.planning.hosts')

USAGE = """\
{program}: predicts what the steps of runs on one machine would take on hosts.

  {program} --net=lenet --num_nodes=4 \\
      --runs=float32=DIR1,ternary=DIR2 --codecs=identity --codecs=ternary

prints the measured seconds of a step and those on --num_nodes hosts with 100
Mbit/s and 1 Gbit/s each. A host computes a --num_nodes-th of the float32 run's
step; what another run's step takes longer is its coding. `terngrad plan` times
the codes themselves, and takes other bandwidths.
"""

option = options.option


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportHostsFlags:
  """The flags of `terngrad report hosts`."""

  runs: tuple[str, ...] = option(
    (),
    'NAME=FOLDER of each run, separated by commas, first the one with float32 '
    'gradients; FOLDER is its --train_dir, or holds it as train.',
    'run',
  )
  codecs: tuple[str, ...] = option(
    (),
    "The code of each run, in the order of --runs, as the trainers' --codec "
    'spells it; repeat for several.',
    'codes',
    repeated=True,
  )
  net: str = option('', 'Net of the runs.', 'model')
  num_nodes: int = option(4, 'Nodes of each run.', 'devices')


def act(values: ReportHostsFlags) -> None:
  """Prints the table."""
  command.at_least(2, values, 'num_nodes')
  options.choice('net', values.net, exchanges.NETS)
  if len(values.codecs) != len(values.runs) or values.codecs[0] != 'identity':
    raise flags.UsageError(
      '--codecs: expected one for each of --runs, the first identity, received '
      f'{" ".join(values.codecs) or "none"}. Repeat the flag for each run.'
    )
  folders = command.named_paths(
    'runs', values.runs, 'FOLDER', 'ternary=runs/ternary'
  )
  seconds = {name: hosts.step_seconds(path) for name, path in folders.items()}
  shapes = exchanges.subject(values.net, real=False).shapes
  found = hosts.table(seconds, values.codecs, shapes, values.num_nodes)
  command.say(
    f'Seconds per step: measured here, with {values.num_nodes} nodes on one '
    'machine, and predicted\nfor hosts, which send their gradients over a '
    'network:'
  )
  command.say(found.to_string(index=False, float_format='{:.3f}'.format))


COMMAND = command.Command(
  USAGE,
  ReportHostsFlags,
  act,
  required=('runs', 'codecs', 'net'),
  packages=('pandas',),
)
