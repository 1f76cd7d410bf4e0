"""Writes the gradients of every worker in one step of a training run."""

import dataclasses
import sys

import numpy as np
import tensorflow as tf

from slim.datasets.records import disk
from terngrad import errors
from terngrad.checkpoint import pretrained
from terngrad.checkpoint import resume
from terngrad.codec import one_round
from terngrad.config import config as configs
from terngrad.exchange import towers
from terngrad.program import main
from terngrad.training import assembly

USAGE = """\
dump_gradients: writes the gradients of every worker in one step of a run.

  dump_gradients --output=G.npz --train_dir=T --data_dir=D \\
      --dataset_name=mnist --net=lenet --image_size=28 --num_nodes=8 ...

Takes the flags of the run in T, continues from its last checkpoint for one step
and writes, for every parameter, float32 [workers, ...] under its name: what the
codes are made of, L2 terms included. T stays as it is; where there is no run,
the step is the first, or that from --pretrained_model_checkpoint_path. For
measure_variance.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(configs.TrainConfig):
  """The flags: those of a trainer and where to write."""

  output: str = configs.option('', 'File to write, .npz.', 'run')


def dump(config):
  """Writes the file; returns the exit code."""
  if not config.output.endswith('.npz'):
    raise errors.ConfigError(
      f'output: expected a file name that ends in .npz, received '
      f'{config.output!r}. Say --output=gradients.npz.'
    )
  config.validate()
  run = assembly.assemble(config)
  step = resume.continue_run(config, run, main.say).step
  if step == 0:
    step = pretrained.start(config, run, main.say)
  images, labels = next(run.batches(step))
  zero = tf.constant(0.0)
  result = run.float_step(
    images, labels, tf.constant(step, tf.int64), zero, zero
  )
  payloads = towers.in_order(
    [result.payloads(place) for place in range(len(result.words))]
  )
  # Float payloads are the gradients' own bits.
  workers = [
    one_round.decode_mean(run.float_codec, [payload[tf.newaxis]], result.shared)
    for payload in payloads
  ]
  arrays = {
    name: np.stack([gradients[i] for gradients in workers])
    for i, name in enumerate(run.parameters)
  }
  with disk.replacing(config.output) as hidden, open(hidden, 'wb') as file:
    np.savez(file, **arrays)
  main.say(
    f'{config.output}: the gradients of {len(workers)} workers in step '
    f'{step + 1}, {run.codec.num_elements} elements each'
  )
  return main.DONE


def run():
  """Runs the program; returns the exit code."""
  return main.run(Config, USAGE, {}, dump)


if __name__ == '__main__':
  sys.exit(run())
