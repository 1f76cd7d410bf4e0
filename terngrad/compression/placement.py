"""Where the devices of a training are, in this process and in others."""

import tensorflow as tf

from terngrad.cluster import coordination
from terngrad.cluster import devices as devices_lib
from terngrad.config import cluster as clusters
from terngrad.config import options


def join(devices, rendezvous=None):
  """Makes the exchange, a worker a device; blocks until all are there.

  Args:
    devices: list of numbers of GPUs, or of logical CPU devices on a machine
      without any, or of names such as '/GPU:0'. One that stands twice has two
      workers.
    rendezvous: None for this process alone; else a `config.cluster.Cluster`, or
      a dict of its options.

  Returns:
    `exchange.towers.Towers` or `exchange.collective.Collective`.

  Raises:
    ValueError: there is no such device, or no such option.
    errors.ConfigError: the processes do not find each other.
  """
  cluster = _cluster(rendezvous)
  names = _configured(devices)
  own = len(names)
  num_workers = own * cluster.num_processes
  exchange = coordination.join(cluster, own, num_workers, names)
  for name in names:
    spec = tf.DeviceSpec.from_string(name)
    found = len(tf.config.list_logical_devices(spec.device_type))
    if spec.device_index >= found:
      raise ValueError(
        f'devices: expected devices of this machine, received {name}, but '
        f'there are {found} of that kind. Use others, or configure logical CPU '
        'devices before TensorFlow is used.'
      )
  return exchange


def _cluster(rendezvous):
  """The `config.cluster.Cluster`; see `join`."""
  if rendezvous is None:
    return clusters.Cluster()
  if isinstance(rendezvous, clusters.Cluster):
    return rendezvous
  if not isinstance(rendezvous, dict):
    raise ValueError(
      'rendezvous: expected None, a dict of options or a cluster, received '
      f"{rendezvous!r}. Use {{'cluster': 'tf_config'}}, for example."
    )
  # Processes that meet are equal, unless they say otherwise.
  chosen = {'exchange': clusters.COLLECTIVE} | rendezvous
  return options.build(clusters.Cluster, **chosen)


def _configured(devices):
  """Full names of devices, for which the CPU is split where it has to be."""
  parts = [] if isinstance(devices, str) else [_part(one) for one in devices]
  if not parts or None in parts:
    raise ValueError(
      'devices: expected a list of numbers such as [0, 1] or of names such as '
      f"['/GPU:0', '/GPU:1'], received {devices!r}. List at least one."
    )
  counts = [index + 1 for kind, index in parts if kind != 'GPU']
  gpus = devices_lib.configure(max(counts, default=1))
  default = 'GPU' if gpus else 'CPU'
  return tuple(f'/{kind or default}:{index}' for kind, index in parts)


def _part(device):
  """(kind or '', number) of a device; None for what is none."""
  if isinstance(device, int) and device >= 0:
    return '', device
  try:
    spec = tf.DeviceSpec.from_string(device)
  except (AttributeError, TypeError, ValueError):
    return None
  if spec.device_type not in ('CPU', 'GPU') or spec.job:
    return None
  return spec.device_type, spec.device_index or 0
