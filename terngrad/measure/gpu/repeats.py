"""A run twice: are the trained tensors equal to the bit?"""

import time

import numpy as np
import tensorflow as tf

from terngrad.config import options
from terngrad.config import training as configs
from terngrad.measure import launches
from terngrad.measure.gpu import figures
from terngrad.measure.gpu import parts
from terngrad.step import step as steps_lib
from terngrad.training import assembly

_STEPS, _FEW_STEPS = 300, 3
_BATCH, _NODES, _SIDE, _CLASSES = 64, 4, 28, 10


def check(settings: parts.CheckSettings, report: figures.Report) -> None:
  """Trains LeNet twice with deterministic operations, then counts differences.

  Op determinism stays on in this process.
  """
  tf.config.experimental.enable_op_determinism()
  steps = _FEW_STEPS if settings.small else _STEPS
  tensors, seconds = zip(
    *(train(settings.device, steps) for _ in range(2)), strict=True
  )
  differing = sum(
    a.tobytes() != b.tobytes() for a, b in zip(*tensors, strict=True)
  )
  report(
    figures.Figure(
      f'LeNet, ternary, {_NODES} nodes, {steps} steps, twice',
      differing,
      f'of {len(tensors[0])} tensors differ',
      0.0,
    )
  )
  name = 'a step of it, deterministic'
  report(figures.Figure(name, 1e3 * min(seconds), 'ms'))


def train(device: str, steps: int) -> tuple[list[np.ndarray], float]:
  """Trains LeNet on random images.

  Returns:
    All variables of the replica after the last step, and the seconds of a step
    after the first.
  """
  run = assembly.assemble(
    options.build(
      configs.TrainConfig,
      dataset_name='mnist',
      net='lenet',
      image_size=_SIDE,
      batch_size=_BATCH,
      devices=(device,),
      num_nodes=_NODES,
      codec='ternary',
      benchmark_mode=True,
    )
  )
  start = time.perf_counter()
  for number in range(steps):
    images, labels = _batch(number)
    numbers = steps_lib.host_numbers(number, 0.01, 0.999)
    run.coded_step.take(images, labels, *numbers)
    if not number:
      launches.wait()
      start = time.perf_counter()
  launches.wait()
  seconds = (time.perf_counter() - start) / max(1, steps - 1)
  return [v.numpy() for v in run.replicas[0].variables()], seconds


def _batch(number: int) -> tuple[tf.Tensor, tf.Tensor]:
  """Draws the images [nodes, b, ...] and labels of a step."""
  rng = np.random.default_rng(number)
  share = (_NODES, _BATCH // _NODES)
  images = rng.standard_normal((*share, _SIDE, _SIDE, 1), np.float32)
  labels = rng.integers(0, _CLASSES, share, np.int32)
  return tf.constant(images), tf.constant(labels)
