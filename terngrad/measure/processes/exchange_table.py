"""Steps of several processes beside each other: time, and bytes sent."""

import math
import statistics
from typing import NamedTuple

import numpy as np
import pandas as pd
import tensorflow as tf
from matplotlib import figure

from terngrad import errors
from terngrad.cluster import tasks
from terngrad.cluster import watchdog
from terngrad.exchange import algorithms
from terngrad.exchange import group as groups
from terngrad.measure import timing
from terngrad.measure.processes import exchanges
from terngrad.measure.processes import peers
from terngrad.measure.processes import servers

# Seconds to wait for a task to come, and for a sign of its life.
_TIMEOUT = 300
# Seconds that a task serves a chief that never ends.
_LONGEST = 86400


class Case(NamedTuple):
  """What is measured.

  Attributes:
    text: as it was asked for.
    codec: as `--codec` spells it; 'workers=N' in it is filled in.
    algorithm: see `exchanges.case`.
    part_bytes: see `reduce.parts.cut`.
  """

  text: str
  codec: str
  algorithm: str
  part_bytes: int


class Plan(NamedTuple):
  """How it is measured.

  Attributes:
    net: of `exchanges.NETS`.
    real: see `exchanges.subject`.
    batch: examples a process.
    rounds: to take the median of.
    interface: network interface whose bytes are counted; '' for all.
    network: `algorithms.Network`, by which 'auto' chooses.
  """

  net: str
  real: bool
  batch: int
  rounds: int
  interface: str
  network: algorithms.Network = algorithms.GIGABIT


def parse(text, part_bytes):
  """The `Case` that CODEC, CODEC@ALGORITHM or CODEC@ALGORITHM@BYTES names.

  Args:
    text: see above.
    part_bytes: where the text does not say.

  Raises:
    errors.ConfigError: it is of no such form.
  """
  codec, *more = text.split('@')
  defaults = (algorithms.AUTO, str(part_bytes))
  algorithm, size = (*more, *defaults[len(more) :])[:2]
  known = (algorithms.AUTO, *algorithms.NAMES)
  if algorithm not in known or not size.isdecimal() or len(more) > 2:
    raise errors.ConfigError(
      'case: expected CODEC, CODEC@ALGORITHM or CODEC@ALGORITHM@BYTES with an '
      'algorithm of '
      f'{", ".join(known)}, received {text!r}. Write it as '
      'ternary@gather@0.'
    )
  return Case(text, codec, algorithm, int(size))


def measure(cluster, cases, plan):
  """Measures cases in turns, together with the other tasks of a cluster.

  Args:
    cluster: `cluster.spec.Cluster` of this task.
    cases: list of `Case`.
    plan: `Plan`.

  Returns:
    `pandas.DataFrame`, a row a case; None where this task served the chief.

  Raises:
    errors.ConfigError: a case cannot be, or the interface.
    errors.TrainingError: another task did not come, or the port is taken.
  """
  try:
    # What the limit starts obeys signals while Python's lock is held.
    with watchdog.limit(cluster, _LONGEST, 'The measurement'):
      if 'ps' not in cluster.jobs:
        return _measure_collectives(cluster, cases, plan)
      if cluster.is_chief:
        return _measure_servers(cluster, cases, plan)
      return servers.serve(cluster, _LONGEST)
  except tasks.LostError as error:
    raise errors.TrainingError(str(error)) from error


def _measure_collectives(cluster, cases, plan):
  with errors.as_config_error():
    with watchdog.limit_start(cluster, _TIMEOUT, 'Start'):
      group = groups.Group(cluster, _TIMEOUT)
    what = exchanges.subject(plan.net, plan.real)
    built = {
      case.text: _collective(cluster, group, what, case, plan) for case in cases
    }
  return _measure(built, what, group.size, plan, both_ways=False)


def _collective(cluster, group, what, case, plan):
  """The `exchanges.Case` of collectives, ours or a peer's."""
  if peers.is_peer(case.codec):
    host = cluster.jobs['worker'][0].rpartition(':')[0]
    interface = plan.interface
    return peers.case(what, group, host, case.codec, plan.batch, interface)
  return exchanges.case(
    what,
    group,
    _for(case.codec, group.size),
    case.algorithm,
    plan.batch,
    case.part_bytes,
    plan.network,
  )


def _measure_servers(cluster, cases, plan):
  for case in cases:
    if peers.is_peer(case.codec):
      raise errors.ConfigError(
        f'case: expected a code with parameter servers, received {case.text}, '
        'which has none. Leave the servers or the case out.'
      )
  servers.join(cluster, _TIMEOUT)
  try:
    count = len(cluster.jobs['worker'])
    with errors.as_config_error():
      what = exchanges.subject(plan.net, plan.real)
      built = {
        case.text: servers.case(
          what, cluster, _for(case.codec, count), plan.batch, case.part_bytes
        )
        for case in cases
      }
    return _measure(built, what, count, plan, both_ways=True)
  finally:
    tasks.end(tasks.servers_of(cluster))


def _for(codec, workers):
  return codec.replace('workers=N', f'workers={workers}')


def _measure(built, what, count, plan, both_ways):
  """The table of cases, from a dict of text to `exchanges.Case`."""
  sent = {
    text: _bytes_a_step(one, count, plan, both_ways)
    for text, one in built.items()
  }
  seconds = timing.in_turns(
    {text: (one.step, 1) for text, one in built.items()},
    plan.rounds,
    # Steps with passes are long, on slow networks minutes.
    settle=not plan.real,
  )
  first = next(iter(built))
  elements = sum(tf.TensorShape(s).num_elements() for s in what.shapes)
  return pd.DataFrame(
    {
      'case': text,
      'algorithms': '+'.join(one.algorithms),
      'processes': count,
      'elements': elements,
      'milliseconds': 1e3 * statistics.median(seconds[text]),
      'quartiles': _quartiles(seconds[text]),
      f'to {first}': timing.ratio(seconds, text, first),
      'payload_bytes': one.payload,
      'interface_bytes': sent[text],
      # One process alone sends nothing.
      'overhead': sent[text] / one.payload - 1 if one.payload else math.nan,
      'bits_per_element': 8 * one.payload / elements,
    }
    for text, one in built.items()
  )


def _quartiles(seconds):
  """The first and the third, in milliseconds, as text."""
  first, third = np.percentile(seconds, [25, 75]) * 1e3
  return f'{first:.0f} to {third:.0f}'


def _bytes_a_step(one, count, plan, both_ways):
  """What the interface sends for a process in a step, or sends and receives."""
  is_loopback = plan.interface == 'lo'

  def total():
    received, sent = exchanges.interface_bytes(plan.interface)
    # The loopback receives what it sends.
    return sent + received if both_ways and not is_loopback else sent

  one.step()  # builds its program
  before = total()
  steps = min(plan.rounds, 2) if plan.real else plan.rounds
  for _ in range(steps):
    one.step()
  return (total() - before) / steps / (count if is_loopback else 1)


def chart(table, title):
  """Bars of the time and of the bytes of each case.

  Args:
    table: from `measure`.
    title: of the chart.

  Returns:
    `matplotlib.figure.Figure`.
  """
  page = figure.Figure(figsize=(8, 4), layout='constrained')
  left, right = page.subplots(1, 2, sharey=True)
  left.barh(table['case'], table['milliseconds'])
  left.set_xlabel('milliseconds a step')
  right.barh(table['case'], table['interface_bytes'] / 1e6)
  right.set_xlabel('MB sent a step and process')
  page.suptitle(title)
  return page
