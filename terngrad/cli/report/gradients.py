"""Writes the gradients of every worker in one step of a training run."""

import dataclasses
import pathlib

from terngrad import errors
from terngrad import lazy
from terngrad.cli import command
from terngrad.config import options
from terngrad.config import training as configs

folder = lazy.module('terngrad.checkpoint.folder')
worker_gradients = lazy.module('terngrad.report.worker_gradients')

USAGE = """\
{program}: writes the gradients of every worker in one step of a run.

  {program} --output=G.npz --train_dir=T --data_dir=D \\
      --dataset_name=mnist --net=lenet --image_size=28 --num_nodes=8 ...

Give it the flags of the run in T. It continues from the last checkpoint for one
step and writes, for every parameter, float32 [workers, ...] under its name: the
gradients that are encoded, L2 terms included. T is the run's --train_dir, or
the folder that holds it as `train`; its files do not change. Without
--train_dir it takes the first step, from --pretrained_model_checkpoint_path if
that is set. `terngrad measure variance` reads the file.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(configs.TrainConfig):
  """The flags of a trainer, and the output file."""

  output: str = options.option('', 'File to write, .npz.', 'run')


def act(config: Config) -> None:
  """Writes the gradients to the output file."""
  if not config.output.endswith('.npz'):
    raise errors.ConfigError(
      f'output: expected a file name that ends in .npz, received '
      f'{config.output!r}. Give for example --output=gradients.npz.'
    )
  if config.run.train_dir:
    train_dir = folder.find_run(config.run.train_dir, 'train_dir')
    config = options.replace(config, train_dir=train_dir)
  config.validate()
  output = pathlib.Path(config.output)
  with errors.explain_write_errors('output'):
    # Before the step, which takes longer.
    output.parent.mkdir(parents=True, exist_ok=True)
  arrays, step = worker_gradients.take(config, command.say)
  with errors.explain_write_errors('output'):
    worker_gradients.write(output, arrays)
  workers = len(next(iter(arrays.values())))
  elements = sum(values.size for values in arrays.values()) // workers
  command.say(
    f'{config.output}: the gradients of {workers} workers in step {step}, '
    f'{elements} elements each'
  )


COMMAND = command.Command(USAGE, Config, act)
