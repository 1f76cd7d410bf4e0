"""The command that writes a trained net for other programs."""

import dataclasses
import importlib.util
import os
import pathlib
import shutil
import tempfile
from typing import TYPE_CHECKING

from terngrad import lazy
from terngrad.cli import command
from terngrad.cli import flags
from terngrad.config import options

if TYPE_CHECKING:
  from terngrad.checkpoint import trained as trained_types

catalog = lazy.module('slim.datasets.catalog')
checkpoints = lazy.module('terngrad.checkpoint.checkpoints')
devices = lazy.module('terngrad.cluster.devices')
trained = lazy.module('terngrad.checkpoint.trained')

USAGE = """\
{program}: writes a trained net for programs without terngrad.

  {program} --checkpoint_dir=T --output=net.keras
  {program} --checkpoint_dir=T --output=net --format=saved_model
  {program} --checkpoint_dir=T --output=net.onnx --format=onnx

The net takes float32 images [n, height, width, channels], prepared as
`terngrad predict` prepares them, and returns the probabilities of the classes,
float32 [n, classes]. Keras writes all three formats: keras for keras.models.
load_model (alexnet and cifarnet have a layer of ours: import slim.nets.factory
first), saved_model for TensorFlow Serving and tf.saved_model.load, onnx for
other runtimes (it needs the packages onnx and tf2onnx). An output that exists
is replaced once the new one is complete.
"""

# The formats, and how Keras's `export` names them; '' for `save`.
_FORMATS = {'keras': '', 'saved_model': 'tf_saved_model', 'onnx': 'onnx'}
_ONNX = ('onnx', 'tf2onnx')

option = options.option


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flags:
  """The flags of `terngrad export`."""

  checkpoint_dir: str = option(
    '', 'Checkpoint prefix, or a folder: its newest.', 'run'
  )
  output: str = option(
    '', 'The file to write; a folder for saved_model.', 'run'
  )
  format: str = option('keras', f'One of {", ".join(_FORMATS)}.', 'run')
  dataset_name: str = option(
    '', 'Data set it was trained on; empty: as the checkpoint says.', 'data'
  )
  image_size: int = option(
    0, "Height and width of the input; 0: the net's default.", 'data'
  )
  tower: int = option(-1, "Read this node's parameters.", 'devices')
  restore_avg_var: bool = option(
    True, 'Read the moving averages of the parameters.', 'model'
  )


def act(values: Flags) -> None:
  """Writes the net, and prints what it takes and returns."""
  _check(values)
  name = values.dataset_name or _data_set(values.checkpoint_dir)
  devices.grow_memory()
  net = trained.load(
    trained.Options(
      checkpoint_dir=values.checkpoint_dir,
      image_size=values.image_size,
      tower=values.tower,
      restore_avg_var=values.restore_avg_var,
      device='/cpu:0',
    ),
    catalog.find(name).channels,
  )
  write(net, values.output, values.format)
  shape = ', '.join(map(str, net.model.input_shape[1:]))
  command.say(
    f'{values.output}: {net.layout.net} after {net.step} steps, from float32 '
    f'[n, {shape}] to probabilities of {net.layout.num_classes} classes'
  )


def _check(values: Flags) -> None:
  """Refuses flags that do not fit, before anything is loaded."""
  options.choice('format', values.format, _FORMATS)
  ending = {'keras': '.keras', 'onnx': '.onnx'}.get(values.format, '')
  if not values.output.endswith(ending):
    raise flags.UsageError(
      f'--output: expected a name that ends in {ending} for '
      f'--format={values.format}, received {values.output!r}. Rename it, or '
      'give another --format.'
    )
  missing = [name for name in _ONNX if importlib.util.find_spec(name) is None]
  if values.format == 'onnx' and missing:
    raise flags.UsageError(
      f'--format=onnx: expected the packages {" and ".join(_ONNX)}, received '
      f'no {" and no ".join(missing)}. Install them: pip install '
      f'{" ".join(missing)}.'
    )


def _data_set(checkpoint_dir: str) -> str:
  """Returns the name of the data set that a checkpoint was trained on."""
  layout = checkpoints.read_layout(checkpoints.find(checkpoint_dir))
  recorded = {**(layout.must_keep or {}), **(layout.may_change or {})}
  name = recorded.get('dataset_name') or layout.dataset_name
  if not name:
    raise flags.UsageError(
      '--dataset_name: expected the data set of the training run, received '
      'none, and the checkpoint does not say it. Give --dataset_name=NAME.'
    )
  return str(name)


def write(net: 'trained_types.Trained', output: str, kind: str) -> None:
  """Writes a net in a format; replaces `output` once all is written.

  Args:
    net: the net.
    output: file or folder to write.
    kind: a key of the formats in `--help`.

  Raises:
    OSError: it cannot be written.
  """
  model = trained.classifier(net.model)
  target = pathlib.Path(output)
  target.parent.mkdir(parents=True, exist_ok=True)
  # In the same folder, so that the rename stays on one file system.
  with tempfile.TemporaryDirectory(
    prefix='.export_', dir=target.parent
  ) as folder:
    # Keras demands the ending.
    part = os.path.join(folder, f'net{target.suffix}')
    if _FORMATS[kind]:
      model.export(part, format=_FORMATS[kind], verbose=False)
    else:
      model.save(part)
    if target.is_dir() and not target.is_symlink():
      shutil.move(target, os.path.join(folder, 'before'))
    os.replace(part, target)


COMMAND = command.Command(
  USAGE, Flags, act, required=('checkpoint_dir', 'output')
)
