"""Lists and draws the layers of a net."""

import dataclasses
import os
import pathlib

from terngrad import errors
from terngrad import lazy
from terngrad.cli import command
from terngrad.config import options

disk = lazy.module('slim.datasets.records.disk')
execution = lazy.module('terngrad.training.execution')
graphs = lazy.module('slim.nets.graphs')
net_summary = lazy.module('terngrad.report.net_summary')
nets = lazy.module('slim.nets.factory')
tf = lazy.module('tensorflow')

USAGE = """\
{program}: lists the layers of a net.

  {program} inception_v3 --drawing=inception_v3.svg

One line per layer, with its parameters and the multiply-adds for one image, or
for one token of a language model; the last line has the sums.
"""

option = options.option


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportNetFlags:
  """The flags of `terngrad report net`."""

  net: str = option('', 'Network to build.', 'model')
  num_classes: int = option(1000, 'Number of logits.', 'model')
  image_size: int = option(
    0, 'Height and width of the input; 0: the default of the net.', 'model'
  )
  num_channels: int = option(
    0, 'Channels of the input; 0: the default of the net.', 'model'
  )
  drawing: str = option('', 'SVG file for a drawing of the layers.', 'run')
  tensorboard_dir: str = option(
    '', 'Folder for the graph of operations, for TensorBoard.', 'run'
  )


def act(values: ReportNetFlags) -> None:
  """Prints the table, and writes the drawing and graph if requested."""
  command.at_least(1, values, 'num_classes')
  command.at_least(0, values, 'image_size', 'num_channels')
  with execution.memory_errors_as_config_errors():
    model = nets.build(
      values.net,
      num_classes=values.num_classes,
      image_size=values.image_size or None,
      channels=values.num_channels or None,
    )
  command.say(net_summary.text(model))
  if values.drawing:
    path = pathlib.Path(values.drawing)
    with errors.explain_write_errors('drawing'):
      path.parent.mkdir(parents=True, exist_ok=True)
      disk.write_text(path, net_summary.drawing(model))
    command.say(f'Drawing: {path}')
  if values.tensorboard_dir:
    with errors.explain_write_errors('tensorboard_dir'):
      os.makedirs(values.tensorboard_dir, exist_ok=True)
    with tf.summary.create_file_writer(values.tensorboard_dir).as_default():
      tf.summary.graph(graphs.trace(model))
    command.say(f'Graph: tensorboard --logdir={values.tensorboard_dir}')


COMMAND = command.Command(
  USAGE, ReportNetFlags, act, words=('net',), required=('net',)
)
