"""Loads models with the parameters of a checkpoint."""

from typing import Any
from typing import NamedTuple

import keras
import tensorflow as tf

from slim.nets import factory as nets
from terngrad import errors
from terngrad.checkpoint import checkpoints
from terngrad.cluster import devices
from terngrad.step import model_variables
from terngrad.step import replicas


class LoadOptions(NamedTuple):
  """Which parameters to load, and for which image size.

  Attributes:
    checkpoint_dir: directory whose newest checkpoint is read, or a checkpoint.
    image_size: height and width of the input; 0 for that of the training.
    tower: the node whose parameters are read; -1 for the first stored device.
    restore_avg_var: True reads the moving averages of the parameters.
    device: name of the device to run on.
  """

  checkpoint_dir: str
  image_size: int
  tower: int
  restore_avg_var: bool
  device: str


class Trained(NamedTuple):
  """A model with restored parameters.

  Attributes:
    model: the model.
    image_size: height and width of the model's input.
    layout: layout of the checkpoint.
    step: steps taken before the checkpoint was written.
  """

  model: keras.Model
  image_size: int
  layout: checkpoints.Layout
  step: int

  @property
  def preprocessing(self) -> str:
    """The --preprocessing of the training; '' if the checkpoint has none."""
    return str(recorded_options(self.layout).get('preprocessing') or '')

  @property
  def labels_offset(self) -> int:
    """The --labels_offset of the training; 0 if the checkpoint has none."""
    return int(recorded_options(self.layout).get('labels_offset') or 0)


def data_set(checkpoint_dir: str) -> str:
  """Returns the name of the data set that a checkpoint was trained on.

  Raises:
    errors.CheckpointError: there is no such checkpoint, or it does not say.
  """
  path = checkpoints.find(checkpoint_dir)
  layout = checkpoints.read_layout(path)
  name = recorded_options(layout).get('dataset_name') or layout.dataset_name
  if not name:
    raise errors.CheckpointError(
      'dataset_name: expected the data set of the training run, received '
      f'none, and {path} does not say it. Give --dataset_name=NAME.'
    )
  return str(name)


def recorded_options(layout: checkpoints.Layout) -> dict[str, Any]:
  """Returns the options that a checkpoint records; {} for older ones."""
  return {**(layout.must_keep or {}), **(layout.may_change or {})}


def load(options: LoadOptions, channels: int) -> Trained:
  """Builds the net of a checkpoint and restores its parameters.

  Raises:
    errors.CheckpointError: there is no such checkpoint, or it does not fit.
    slim.errors.UnknownNameError: the checkpoint's net is unknown.
  """
  path = checkpoints.find(options.checkpoint_dir)
  layout = checkpoints.read_layout(path)
  net = nets.find_net(layout.net)
  # Older checkpoints do not record it.
  size = (
    options.image_size
    or recorded_options(layout).get('image_size')
    or net.default_image_size
  )
  with tf.device(devices.evaluation_device(options.device)):
    model = nets.build(
      layout.net,
      num_classes=layout.num_classes,
      image_size=size,
      channels=channels,
    )
  restore(model, path, layout, options.tower, options.restore_avg_var)
  return Trained(model, size, layout, checkpoints.step_of(path))


def restore(
  model: keras.Model,
  path: str,
  layout: checkpoints.Layout,
  tower: int,
  averaged: bool,
) -> None:
  """Reads a node's parameters, or their averages, into a model.

  Args:
    model: a model with the checkpoint's net and number of classes.
    path: prefix of the checkpoint.
    layout: layout of the checkpoint.
    tower: the node; -1 for the first stored device.
    averaged: True reads the averages.

  Raises:
    errors.CheckpointError: the checkpoint does not hold the tower.
  """
  device_index = _device_index(tower, path, layout)
  plan = model_variables.variables_of(model)
  named = zip(plan.names, (*plan.trainable, *plan.statistics), strict=True)
  checkpoints.restore(
    path,
    device_index,
    {
      replicas.average_name(name) if averaged else name: variable.value
      for name, variable in named
    },
  )


def probabilities(model: keras.Model, images: tf.Tensor) -> tf.Tensor:
  """Returns a model's class probabilities.

  Args:
    model: maps images to logits.
    images: float32 [n, H, W, C], preprocessed.

  Returns:
    float32 [n, classes]; each row sums to 1.
  """
  return tf.nn.softmax(nets.select_logits(model(images, training=False)))


def classifier(model: keras.Model) -> keras.Model:
  """Returns a model from images to class probabilities.

  Args:
    model: maps images to logits, with or without auxiliary logits.

  Returns:
    A model from the same inputs to float32 [n, classes]; each row sums to 1.
  """
  softmax = keras.layers.Softmax(dtype='float32', name='probabilities')
  return keras.Model(
    model.inputs[0], softmax(nets.select_logits(model.outputs))
  )


def _device_index(tower: int, path: str, layout: checkpoints.Layout) -> int:
  """Returns the index of the stored device with the node's parameters.

  Raises:
    errors.CheckpointError: the device was not stored.
  """
  if tower < 0:
    return layout.places[0]
  # The devices of a worker are consecutive, and their parameters are equal.
  size = recorded_options(layout).get('devices_per_worker') or 1
  devices = [
    node % (layout.num_devices // size) * size
    for node in range(layout.num_workers)
  ]
  if tower < layout.num_workers and devices[tower] in layout.places:
    return devices[tower]
  stored = [n for n, device in enumerate(devices) if device in layout.places]
  raise errors.CheckpointError(
    f'tower: expected a node whose device is stored in {path}, one of '
    f'{stored}, received {tower}. Leave --tower out to read the first stored '
    'device, or train with --save_tower=-1 to store all devices.'
  )
