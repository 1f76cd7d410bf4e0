"""The command that writes a trained net for other programs."""

import dataclasses
import importlib.util
import os
import pathlib
import tempfile
from typing import TYPE_CHECKING
from typing import NamedTuple

from slim import errors as data_errors
from terngrad import errors
from terngrad import lazy
from terngrad.cli import command
from terngrad.cli import flags
from terngrad.config import options

if TYPE_CHECKING:
  from terngrad.checkpoint import trained as trained_types

catalog = lazy.module('slim.datasets.catalog')
devices = lazy.module('terngrad.cluster.devices')
tf = lazy.module('tensorflow')
trained = lazy.module('terngrad.checkpoint.trained')

USAGE = """\
{program}: writes a trained net for programs without terngrad.

  {program} --checkpoint_dir=T --output=net.keras
  {program} --checkpoint_dir=T --output=net --format=saved_model
  {program} --checkpoint_dir=T --output=net.onnx --format=onnx

The net takes float32 images [n, height, width, channels], prepared as
`terngrad predict` prepares them, and returns the probabilities of the classes,
float32 [n, classes]. A language model takes int32 tokens [n, T] and returns the
probabilities of each next token, float32 [n, T, tokens]. Keras writes all three
formats:

  keras        for keras.models.load_model; for alexnet, cifar10_alexnet,
               cifarnet, gpt_nano and gpt_small import slim.nets.factory first,
               which registers their layers
  saved_model  for TensorFlow Serving and tf.saved_model.load
  onnx         for other runtimes (needs the extra onnx)

A file of that name, or the folder of an earlier SavedModel without other files,
is replaced once the new one is complete. For a checkpoint of --keep_best use
--restore_avg_var=false: its score is that of the parameters, not of their
averages.
"""


class _Format(NamedTuple):
  """A format: its name in Keras's `export`, '' for `save`, and its ending."""

  name: str
  ending: str


_FORMATS = {
  'keras': _Format('', '.keras'),
  'saved_model': _Format('tf_saved_model', ''),
  'onnx': _Format('onnx', '.onnx'),
}
_ONNX = ('onnx', 'tf2onnx')
# What Keras writes into the folder of a SavedModel.
_SAVED_MODEL = {'assets', 'fingerprint.pb', 'saved_model.pb', 'variables'}

option = options.option


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportFlags:
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
    0, 'Height and width of the input; 0: as in training.', 'data'
  )
  tower: int = option(-1, "Read this node's parameters.", 'devices')
  restore_avg_var: bool = option(
    True, 'Read the moving averages of the parameters.', 'model'
  )


def act(values: ExportFlags) -> None:
  """Writes the net, and prints what it takes and returns."""
  _check(values)
  name = values.dataset_name or trained.data_set(values.checkpoint_dir)
  devices.grow_memory()
  net = trained.load(
    trained.LoadOptions(
      checkpoint_dir=values.checkpoint_dir,
      image_size=values.image_size,
      tower=values.tower,
      restore_avg_var=values.restore_avg_var,
      device='/cpu:0',
    ),
    catalog.find(name).channels,
  )
  write(net, values.output, values.format)
  model_input = net.model.inputs[0]
  shape = ', '.join(str(size or 'T') for size in model_input.shape[1:])
  command.say(
    f'{values.output}: {net.layout.net} after {net.step} steps, from '
    f'{model_input.dtype} [n, {shape}] to probabilities of '
    f'{net.layout.num_classes} classes'
  )


def _check(values: ExportFlags) -> None:
  """Refuses flags that do not fit, before anything is loaded."""
  options.choice('format', values.format, _FORMATS)
  ending = _FORMATS[values.format].ending
  path = pathlib.Path(values.output)
  if path.suffix != ending and ending:
    raise flags.UsageError(
      f'--output: expected a name that ends in {ending} for '
      f'--format={values.format}, received {values.output!r}. Rename it, or '
      'give another --format.'
    )
  members = set(os.listdir(path)) if path.is_dir() else set()
  is_export = 'saved_model.pb' in members and members <= _SAVED_MODEL
  is_free = not os.path.lexists(path) or (path.is_file() and bool(ending))
  if not is_free and (ending or not is_export):
    raise flags.UsageError(
      f'--output: expected a new name or an earlier export, received '
      f'{values.output!r}, which is something else. Give another name.'
    )
  missing = [name for name in _ONNX if importlib.util.find_spec(name) is None]
  if values.format == 'onnx' and missing:
    raise flags.UsageError(
      f'--format=onnx: expected the packages {" and ".join(_ONNX)}, received '
      f'no {" and no ".join(missing)}. Install them: '
      f'{data_errors.install_command("onnx")}.'
    )


def write(net: 'trained_types.Trained', output: str, kind: str) -> None:
  """Writes a net in a format; replaces `output` once all is written.

  Args:
    net: the net.
    output: file or folder to write.
    kind: a key of the formats in `--help`.

  Raises:
    terngrad.errors.ConfigError: it cannot be written.
  """
  target = pathlib.Path(output)
  try:
    target.parent.mkdir(parents=True, exist_ok=True)
    # In the same folder, so that renames stay on one file system.
    with tempfile.TemporaryDirectory(
      prefix='.export_', dir=target.parent
    ) as folder:
      # Keras demands the ending.
      part = os.path.join(folder, f'net{target.suffix}')
      _write_part(net, part, _FORMATS[kind].name)
      _replace(part, target, os.path.join(folder, 'before'))
  except (OSError, tf.errors.OpError) as error:
    raise errors.ConfigError(
      f'output: expected a place to write to, received {output}: {error}. Make '
      'room, or choose another --output.'
    ) from error


def _write_part(net: 'trained_types.Trained', path: str, name: str) -> None:
  model = trained.classifier(net.model)
  if not name:
    model.save(path)
    return
  # Keras exports only models that have computed something.
  model_input = model.inputs[0]
  model(tf.zeros([size or 1 for size in model_input.shape], model_input.dtype))
  model.export(path, format=name, verbose=False)


def _replace(part: str, target: pathlib.Path, before: str) -> None:
  """Renames what was written, and puts the earlier export back on failure."""
  if not target.is_dir():
    os.replace(part, target)
    return
  os.rename(target, before)
  try:
    os.rename(part, target)
  except OSError:
    os.rename(before, target)
    raise


COMMAND = command.Command(
  USAGE, ExportFlags, act, required=('checkpoint_dir', 'output')
)
