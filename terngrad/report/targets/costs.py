"""Bytes and predicted seconds of a step of a variant."""

import math
import os
from collections.abc import Mapping
from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd

from slim.datasets.records import manifest
from slim.nets import factory as nets
from terngrad import errors
from terngrad.codec import method as methods
from terngrad.config import devices as devices_options
from terngrad.config import model as model_options
from terngrad.exchange import algorithms
from terngrad.measure.planning import model as models
from terngrad.training import batches

Shapes = Sequence[tuple[int, ...]]


class Setting(NamedTuple):
  """Workers of their own hosts, and a network between them.

  Attributes:
    computing: seconds that a worker computes in a step without an exchange, or
      in each of the local steps between two exchanges.
    bandwidth: bits per second of a worker, in each direction.
    latency: seconds from one worker to another.
    workers: number of workers.
  """

  computing: float
  bandwidth: float
  latency: float
  workers: int


def shapes_of(
  data: model_options.DataOptions, net: str, data_dir: str = ''
) -> Shapes:
  """Returns the shapes of the trainable variables of a run's net.

  Args:
    data: options of the run.
    net: name of the net.
    data_dir: folder of the data, which says how many classes or tokens there
      are if --num_classes does not; '': as many as the catalog says.
  """
  classes, channels = batches.expected_sizes(data, net)
  if data_dir and not data.num_classes:
    found = manifest.read(data_dir)
    classes = found.num_classes - data.labels_offset if found else classes
  model = nets.build(
    net, num_classes=classes, image_size=data.image_size, channels=channels
  )
  return [tuple(v.shape) for v in model.trainable_variables]


def work_of(examples: Mapping[str, float]) -> dict[str, float]:
  """Returns each variant's examples over the fewest of all.

  Args:
    examples: examples of a worker in a step, by variant.
  """
  fewest = min(examples.values(), default=1.0)
  return {name: count / fewest for name, count in examples.items()}


def read_measured(path: str | os.PathLike[str]) -> dict[str, dict[str, float]]:
  """Reads measured seconds of steps: by heading of the network, by variant.

  Args:
    path: of a CSV file with the columns `variant`, `network` and `seconds`;
      other columns are not read.

  Raises:
    errors.ConfigError: there is no such table, a network has a variant twice,
      or seconds are not finite and above 0.
  """
  columns = {'variant': str, 'network': str, 'seconds': float}
  try:
    table = pd.read_csv(path)[[*columns]].astype(columns)
    for seconds in table['seconds']:
      if not 0 < seconds < math.inf:
        raise ValueError(f'{seconds} seconds')
    by_network = table.pivot(
      index='variant', columns='network', values='seconds'
    )
  except (KeyError, OSError, ValueError) as error:
    raise errors.ConfigError(
      'measured: expected a CSV file with the columns variant, network and '
      'seconds, and one row for each variant and network, received '
      f'{os.fspath(path)} ({error}). Correct it.'
    ) from error
  return {
    f'seconds, {network} (measured steps)': dict(by_network[network].dropna())
    for network in dict.fromkeys(table['network'])
  }


def bandwidth_of(ratio: float, elements: int, computing: float) -> float:
  """Returns the bandwidth with a ratio of wire time to computing time.

  The wire time is that of 32 bits for each element.

  Examples:
    >>> bandwidth_of(10, 1_000_000, 0.5)
    6400000.0

  Args:
    ratio: seconds on the wire over seconds of computing, above 0.
    elements: parameters of the model.
    computing: seconds that a worker computes in a step.

  Returns:
    Bits per second.
  """
  return 32 * elements / (ratio * computing)


def megabytes_of_step(
  devices: devices_options.DeviceOptions,
  codec: str,
  shapes: Shapes,
  workers: int,
  bits: float,
) -> float:
  """Computes what a worker sends in a step of collective mode.

  Encoded bits are sent as often as the algorithms need that the exchange
  chooses at 1 Gbit/s: a gather sends them to each other worker. A single worker
  sends nothing. In a step one of several fragments is exchanged.

  Args:
    devices: options of the variant's local steps.
    codec: codec of the variant, in the syntax of `--codec`.
    shapes: shapes of the variables.
    workers: number of workers.
    bits: bits per element that a worker of the runs encoded in a step.

  Returns:
    Millions of bytes.
  """
  link = algorithms.GIGABIT
  network = models.Network(link.bandwidth, link.latency, workers)
  traffic = models.traffic_of(codec, tuple(shapes), network)
  encoded = bits * sum(methods.sizes_of(shapes)) / 8e6
  sent = encoded * traffic.num_bytes / traffic.encoded
  return sent / devices.fragments


def seconds_of_step(
  devices: devices_options.DeviceOptions,
  codec: str,
  shapes: Shapes,
  setting: Setting,
  cost: models.Coding,
) -> float:
  """Predicts the seconds from one update of all workers to the next.

  With local steps this is the time of those between two exchanges. An exchange
  of one of several fragments has its share of the bytes and of the coding, and
  all latencies. Overlapped local steps hide the transfer.

  Args:
    devices: options of the variant's local steps.
    codec: codec of the variant, in the syntax of `--codec`.
    shapes: shapes of the variables.
    setting: computing and network.
    cost: coding costs of the codec.
  """
  steps = devices.steps_per_exchange
  network = models.Network(setting.bandwidth, setting.latency, setting.workers)
  planned = models.plan(
    *(codec, shapes, steps * setting.computing, network, cost),
    fragments=devices.fragments,
  )
  hidden = min(planned.wire, devices.overlap_steps * setting.computing)
  return planned._replace(hidden=hidden).step
