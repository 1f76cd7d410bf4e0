"""The device: name, versions, speed of its memory, cost of a launch."""

import pathlib
import re
import statistics

import tensorflow as tf

from terngrad import native
from terngrad.cluster import devices
from terngrad.measure import launches
from terngrad.measure import turns
from terngrad.measure.gpu import figures
from terngrad.measure.gpu import parts

_DRIVER = '/proc/driver/nvidia/version'
_ROUNDS = 5
_ELEMENTS, _FEW_ELEMENTS = 2**27, 2**16


def check(settings: parts.CheckSettings, report: figures.Report) -> None:
  """Reports facts about a device, then measures it."""
  for name, value in facts(settings.device).items():
    report(figures.Figure(name, value))
  size = _FEW_ELEMENTS if settings.small else _ELEMENTS
  copy = turns.plan(launches.memory_copy(settings.device, size), 100, _ROUNDS)
  launch = turns.plan(launches.empty(settings.device), 1000, _ROUNDS)
  seconds = turns.take({'copy': copy, 'launch': launch}, _ROUNDS)
  # A copy reads and writes.
  speed = 8e-9 * size / statistics.median(seconds['copy'])
  report(figures.Figure('copy, read and written', speed, 'GB/s'))
  micros = 1e6 * statistics.median(seconds['launch'])
  report(figures.Figure('smallest launch', micros, 'microseconds'))


def facts(device: str) -> dict[str, str]:
  """Returns the name of a device, and versions, as texts."""
  build = tf.sysconfig.get_build_info()
  found = {'TensorFlow': tf.__version__}
  for name in ('cuda_version', 'cudnn_version'):
    if name in build:
      found[f'TensorFlow was built for {name.removesuffix("_version")}'] = str(
        build[name]
      )
  if gpu := devices.gpu_name(device):
    return {**found, 'GPU': gpu, **driver()}
  return {**found, 'kernels': native.instruction_set() or 'none'}


def driver(path: str = _DRIVER) -> dict[str, str]:
  """Returns the version of NVIDIA's driver, if it says one."""
  try:
    text = pathlib.Path(path).read_text(encoding='utf-8', errors='replace')
  except OSError:
    return {}
  found = re.search(r'\b\d+\.\d+(\.\d+)?\b', text)
  return {'driver': found[0]} if found else {}
