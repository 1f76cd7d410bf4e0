"""Compares steps of several processes: time, and bytes sent."""

import contextlib
import math
from collections.abc import Mapping
from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd
import tensorflow as tf
from matplotlib import figure

from terngrad import errors
from terngrad.cluster import spec
from terngrad.cluster import tasks
from terngrad.cluster import watchdog
from terngrad.exchange import algorithms
from terngrad.exchange import group as groups
from terngrad.machine import onednn
from terngrad.machine import processor
from terngrad.measure import timing
from terngrad.measure.processes import exchanges
from terngrad.measure.processes import peer_client
from terngrad.measure.processes import peers
from terngrad.measure.processes import servers

# Columns of what a comparison depends on, in every row.
CONDITIONS = ('processor', 'oneDNN', 'threads', 'peer')
# Seconds to wait for a task to start, and for its heartbeat.
_TIMEOUT = 300
# Seconds that a task serves a chief that never ends.
_LONGEST = 86400


class Case(NamedTuple):
  """A codec and an algorithm to measure.

  Attributes:
    text: the case as the user wrote it.
    codec: codec in the syntax of `--codec`; 'workers=N' in it is replaced by
      the number of workers.
    algorithm: 'auto' or a collective algorithm, as for `exchanges.case`.
    part_bytes: bytes per part, as for `reduce.parts.cut`.
  """

  text: str
  codec: str
  algorithm: str
  part_bytes: int


class Settings(NamedTuple):
  """The settings of a measurement.

  Attributes:
    net: a name in `exchanges.NETS`.
    real: True for forward and backward passes, as for `exchanges.subject`.
    batch: examples per process.
    rounds: rounds of timing; the median is reported.
    steps: steps of a case in a row that are timed together in a round.
    interface: network interface whose bytes are counted; '' for all.
    network: the network for which 'auto' chooses algorithms.
    peer_python: interpreter with PyTorch, as for `peers.check`.
  """

  net: str
  real: bool
  batch: int
  rounds: int
  steps: int
  interface: str
  network: algorithms.Link = algorithms.GIGABIT
  peer_python: str = ''


def parse(text: str, part_bytes: int) -> Case:
  """Parses CODEC, CODEC@ALGORITHM or CODEC@ALGORITHM@BYTES.

  Args:
    text: the case.
    part_bytes: bytes per part if the text gives none.

  Raises:
    errors.ConfigError: the text has another form.
  """
  codec, *more = text.split('@')
  defaults = (algorithms.AUTO, str(part_bytes))
  algorithm, size = (*more, *defaults[len(more) :])[:2]
  known = (algorithms.AUTO, *algorithms.NAMES)
  if algorithm not in known or not size.isdecimal() or len(more) > 2:
    raise errors.ConfigError(
      'case: expected CODEC, CODEC@ALGORITHM or CODEC@ALGORITHM@BYTES with one '
      f'of the algorithms {", ".join(known)}, received {text!r}. An example is '
      'ternary@gather@0.'
    )
  return Case(text, codec, algorithm, int(size))


def measure(
  cluster: spec.Cluster, cases: Sequence[Case], settings: Settings
) -> pd.DataFrame | None:
  """Measures cases in alternation, together with the cluster's other tasks.

  Args:
    cluster: the cluster, as this task sees it.
    cases: the cases to measure.
    settings: settings of the measurement.

  Returns:
    One row per case; None if this task served the chief.

  Raises:
    errors.ConfigError: a case or the interface is invalid.
    errors.TrainingError: another task did not start, or the port is taken.
  """
  try:
    # Processes started by the limit handle signals while the GIL is held.
    with watchdog.limit(cluster, _LONGEST, 'The measurement'):
      if 'ps' not in cluster.jobs:
        return _measure_collectives(cluster, cases, settings)
      if cluster.is_chief:
        return _measure_servers(cluster, cases, settings)
      servers.serve(cluster, _LONGEST)
      return None
  except tasks.LostError as error:
    raise errors.TrainingError(str(error)) from error
  except peer_client.PeerLostError as error:
    watchdog.end(str(error))


def _measure_collectives(
  cluster: spec.Cluster, cases: Sequence[Case], settings: Settings
) -> pd.DataFrame:
  with contextlib.ExitStack() as stack, errors.as_config_error():
    with watchdog.limit_start(cluster, _TIMEOUT, 'Start'):
      group = groups.Group(cluster, _TIMEOUT)
    what = exchanges.subject(settings.net, settings.real)
    process = None
    if any(peers.is_peer(case.codec) for case in cases):
      process = stack.enter_context(
        peer_client.PeerProcess(settings.peer_python)
      )
      host = cluster.jobs['worker'][0].rpartition(':')[0]
      peers.join(process, group, host, settings.interface)
    built = {
      case.text: peers.case(what, group, process, case.codec, settings.batch)
      if process and peers.is_peer(case.codec)
      else exchanges.case(
        what,
        group,
        _set_workers(case.codec, group.size),
        case.algorithm,
        settings.batch,
        case.part_bytes,
        settings.network,
      )
      for case in cases
    }
    return _measure(built, what, group.size, settings, count_received=False)


def _measure_servers(
  cluster: spec.Cluster, cases: Sequence[Case], settings: Settings
) -> pd.DataFrame:
  for case in cases:
    if peers.is_peer(case.codec):
      raise errors.ConfigError(
        'case: expected a codec to measure with parameter servers, received '
        f'{case.text}, which cannot use them. Remove the servers or the case.'
      )
  servers.join(cluster, _TIMEOUT)
  try:
    count = len(cluster.jobs['worker'])
    with errors.as_config_error():
      what = exchanges.subject(settings.net, settings.real)
      built = {
        case.text: servers.case(
          *(what, cluster, _set_workers(case.codec, count), settings.batch),
          case.part_bytes,
        )
        for case in cases
      }
    return _measure(built, what, count, settings, count_received=True)
  finally:
    tasks.end_tasks(tasks.servers_of(cluster))


def _set_workers(codec: str, workers: int) -> str:
  return codec.replace('workers=N', f'workers={workers}')


def _measure(
  built: Mapping[str, exchanges.MeasuredStep],
  what: exchanges.Subject,
  count: int,
  settings: Settings,
  count_received: bool,
) -> pd.DataFrame:
  """Returns the table of cases, by their texts."""
  sent = {
    text: _bytes_a_step(one, count, settings, count_received)
    for text, one in built.items()
  }
  seconds = timing.alternate(
    {text: (one.step, 1) for text, one in built.items()},
    settings.rounds,
    in_a_row=settings.steps,
  )
  first = next(iter(built))
  elements = sum(tf.TensorShape(s).num_elements() for s in what.shapes)
  machine = (
    processor.model(),
    'on' if onednn.is_on() else 'off',
    tf.config.threading.get_intra_op_parallelism_threads(),
  )
  quartiles = 1e3 * pd.DataFrame(seconds).quantile([0.25, 0.5, 0.75])
  return pd.DataFrame(
    {
      'case': text,
      'algorithms': '+'.join(one.algorithms),
      'processes': count,
      'elements': elements,
      'milliseconds': quartiles[text][0.5],
      'quartiles': '{:.0f} to {:.0f}'.format(*quartiles[text][[0.25, 0.75]]),
      f'to {first}': timing.ratio(seconds, text, first),
      'payload_bytes': one.payload,
      'interface_bytes': sent[text],
      # A single process sends nothing.
      'overhead': sent[text] / one.payload - 1 if one.payload else math.nan,
      'bits_per_element': 8 * one.payload / elements,
      **dict(zip(CONDITIONS, (*machine, peers.describe(text)), strict=True)),
    }
    for text, one in built.items()
  )


def _bytes_a_step(
  one: exchanges.MeasuredStep,
  count: int,
  settings: Settings,
  count_received: bool,
) -> float:
  """Counts the bytes per step and process: sent, or sent and received."""
  is_loopback = settings.interface == 'lo'

  def total() -> int:
    received, sent = exchanges.interface_bytes(settings.interface)
    # The loopback receives what it sends.
    return sent + received if count_received and not is_loopback else sent

  one.step()  # traces the step
  before = total()
  steps = min(settings.rounds, 2) if settings.real else settings.rounds
  for _ in range(steps):
    one.step()
  return (total() - before) / steps / (count if is_loopback else 1)


def chart(table: pd.DataFrame, title: str) -> figure.Figure:
  """Plots time and bytes of each case in a table of `measure`."""
  page = figure.Figure(figsize=(8, 4), layout='constrained')
  left, right = page.subplots(1, 2, sharey=True)
  left.barh(table['case'], table['milliseconds'])
  left.set_xlabel('milliseconds per step')
  right.barh(table['case'], table['interface_bytes'] / 1e6)
  right.set_xlabel('MB sent per step and process')
  page.suptitle(title)
  return page
