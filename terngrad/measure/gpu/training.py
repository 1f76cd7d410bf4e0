"""Times of steps: plain Keras, float32 replicas, and nodes with a code."""

import functools
import time
from collections.abc import Callable
from collections.abc import Mapping

import pandas as pd
import tensorflow as tf

from terngrad.config import options
from terngrad.config import training as configs
from terngrad.measure import step_table
from terngrad.measure import timing
from terngrad.measure.gpu import figures
from terngrad.measure.gpu import parts

_CODEC, _NODES = 'ternary', (1, 4)
# Largest accepted times relative to plain Keras, on GPUs.
_LIMITS = {
  step_table.TOWERS: 1.02,
  step_table.coded_kind(_CODEC, 1): 1.05,
  step_table.coded_kind(_CODEC, 4): 1.3,
}
_ROUNDS, _STEPS = 5, 10
_MOST_LETTERS = 300
# Flags of the trainers.
_Flags = dict[str, str | int]
_PHOTOGRAPHS: _Flags = {'dataset_name': 'imagenet', 'image_size': 224}
_DIGITS: _Flags = {
  'dataset_name': 'mnist',
  'net': 'lenet',
  'image_size': 28,
  'batch_size': 8,
}
_TEXTS: _Flags = {
  'dataset_name': 'text',
  'net': 'gpt_small',
  'image_size': 256,
  'batch_size': 32,
}
_SHORT_TEXTS: _Flags = _TEXTS | {
  'net': 'gpt_small:blocks=1,width=16,heads=2',
  'image_size': 8,
  'batch_size': 4,
}


def check_alexnet(
  settings: parts.CheckSettings, report: figures.Report
) -> None:
  """Times steps of AlexNet with 128 photographs."""
  _check_photographs(settings, report, net='alexnet', batch_size=128)


def check_resnet50(
  settings: parts.CheckSettings, report: figures.Report
) -> None:
  """Times steps of ResNet-50 with 64 photographs."""
  _check_photographs(settings, report, net='resnet_v1_50', batch_size=64)


def check_transformer(
  settings: parts.CheckSettings, report: figures.Report
) -> None:
  """Times steps of a transformer with 32 texts of 256 tokens."""
  model = _SHORT_TEXTS if settings.small else _TEXTS
  kinds = _kinds(settings.device, model)
  # The limits are for photographs.
  compare(kinds, settings._replace(small=True), report)


def _check_photographs(
  settings: parts.CheckSettings, report: figures.Report, **model: str | int
) -> None:
  """Times steps of a net; of LeNet on 8 images if the check is small."""
  model = _DIGITS if settings.small else _PHOTOGRAPHS | model
  compare(_kinds(settings.device, model), settings, report)


def _kinds(
  device: str, model: _Flags
) -> dict[str, Callable[[], step_table.Step]]:
  """Returns the builders of the kinds of steps of a model on a device."""
  config = options.build(
    configs.TrainConfig,
    **model,
    devices=(device,),
    codec=_CODEC,
    quantize_logits=True,
    benchmark_mode=True,
  )
  return step_table.kinds(config, _NODES)


def compare(
  kinds: Mapping[str, Callable[[], step_table.Step]],
  settings: parts.CheckSettings,
  report: figures.Report,
) -> None:
  """Times the kinds of steps in turns.

  Before the rounds, each kind reports its first step and the next ones as soon
  as it is built, plain Keras first, in case the time limit comes. A kind that
  TensorFlow cannot run is reported, and the others are compared.

  Args:
    kinds: builds a step by the kind's name.
    settings: settings of the check.
    report: takes the figures.
  """
  rounds, count = (1, 2) if settings.small else (_ROUNDS, _STEPS)
  jobs: dict[str, tuple[timing.Job, int]] = {}
  seconds: dict[str, list[float]] = {}
  # A stable sort.
  for kind in sorted(kinds, key=lambda one: one not in step_table.KERAS_KINDS):
    start = time.perf_counter()
    try:
      step = kinds[kind]()
      step_table.repeat(step, 1)
    except (tf.errors.OpError, MemoryError) as error:
      text = f'failed: {type(error).__name__} {error}'[:_MOST_LETTERS]
      report(figures.Figure(kind, text, limit=0.0))
      continue
    name = f'{kind}, until the first step ends'
    report(figures.Figure(name, time.perf_counter() - start, 's'))
    jobs[kind] = functools.partial(step_table.repeat, step, count), count
    seconds[kind] = [timing.time_once(jobs[kind][0]) / count]
    _report_times(seconds, settings, report, [kind])
  seconds = timing.alternate(jobs, rounds, warm_up=0)
  _report_times(seconds, settings, report, list(jobs))


def _report_times(
  seconds: dict[str, list[float]],
  settings: parts.CheckSettings,
  report: figures.Report,
  names: list[str],
) -> None:
  """Reports the milliseconds of some kinds, and their ratios to Keras."""
  table = step_table.compare(pd.DataFrame(seconds))
  for kind in names:
    found = table.loc[kind]
    report(figures.Figure(kind, found['milliseconds'], 'ms'))
    if kind not in step_table.KERAS_KINDS and f'to {step_table.KERAS}' in found:
      limit = _LIMITS.get(kind) if settings.has_limits else None
      ratio = found[f'to {step_table.KERAS}']
      report(figures.Figure(f'{kind}, ratio', ratio, 'to plain Keras', limit))
