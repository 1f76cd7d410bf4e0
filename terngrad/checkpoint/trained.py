"""Models with the parameters of a checkpoint."""

import dataclasses
from typing import NamedTuple

import keras
import tensorflow as tf

from slim import errors as data_errors
from slim.nets import factory as nets
from terngrad import errors
from terngrad.checkpoint import checkpoints
from terngrad.cluster import devices
from terngrad.step import replicas


class Trained(NamedTuple):
  """A model that is ready to be used.

  Attributes:
    model: keras.Model.
    config: `config.EvalConfig` with the net and the image size it was built of.
    layout: `checkpoints.Layout` of the checkpoint.
    step: steps taken before it was written.
  """

  model: keras.Model
  config: object
  layout: checkpoints.Layout
  step: int


def load(config, channels):
  """Builds and restores the net of a checkpoint.

  Args:
    config: `config.EvalConfig`; its net is taken from the checkpoint, and its
      image_size from the net where it is 0.
    channels: of the images.

  Returns:
    A `Trained`.

  Raises:
    errors.CheckpointError: there is no such checkpoint, or it does not fit.
    slim.errors.UnknownNameError: it is of a net that is not known here.
  """
  path = checkpoints.find(config.checkpoint_dir)
  layout = checkpoints.read_layout(path)
  net = data_errors.lookup(nets.NETS, layout.net, 'net')
  config = dataclasses.replace(
    config,
    net=layout.net,
    image_size=config.image_size or net.default_image_size,
  )
  with tf.device(devices.evaluation_device(config.device)):
    model = build(config, layout.num_classes, channels)
  restore(model, config, path, layout, layout.num_classes)
  return Trained(model, config, layout, checkpoints.step_of(path))


def build(config, num_classes, channels):
  """The net of a configuration, with fresh parameters.

  Args:
    config: `config.EvalConfig`.
    num_classes: logits.
    channels: of the images.

  Returns:
    A keras.Model.
  """
  return nets.build(
    config.net,
    num_classes=num_classes,
    image_size=config.image_size,
    channels=channels,
    weight_decay=config.weight_decay,
    dropout_keep_prob=config.dropout_keep_prob,
    seed=config.seed % 2**31,
  )


def restore(model, config, path, layout, num_classes):
  """Reads a node's parameters, or their averages, into a model.

  Args:
    model: from `build`.
    config: `config.EvalConfig`; its tower and restore_avg_var say which.
    path: prefix of the checkpoint.
    layout: its `checkpoints.Layout`.
    num_classes: logits of the model.

  Raises:
    errors.CheckpointError: it is of another net, or does not hold the tower.
  """
  expected = {'net': config.net, 'num_classes': num_classes}
  checkpoints.check_layout(path, layout, expected)
  place = _place(config.tower, path, layout)
  plan = replicas.layout(model)
  named = zip(plan.names, (*plan.trainable, *plan.statistics), strict=True)
  averaged = config.restore_avg_var
  checkpoints.restore(
    path,
    place,
    {
      replicas.average_name(name) if averaged else name: variable.value
      for name, variable in named
    },
  )


def probabilities(model, images):
  """What a model believes.

  Args:
    model: from `build`.
    images: float32 [n, H, W, C], preprocessed.

  Returns:
    float32 [n, classes]; each row sums to 1.
  """
  return tf.nn.softmax(nets.logits_of(model(images, training=False)))


def _place(tower, path, layout):
  """The stored device that holds the node's parameters.

  Raises:
    errors.CheckpointError: it was not stored.
  """
  if tower < 0:
    return layout.places[0]
  place = tower % layout.num_devices
  if tower < layout.num_workers and place in layout.places:
    return place
  stored = [
    node
    for node in range(layout.num_workers)
    if node % layout.num_devices in layout.places
  ]
  raise errors.CheckpointError(
    f'tower: expected a node whose device {path} holds, one of {stored}, '
    f'received {tower}. Leave --tower out to read what is there, or train with '
    '--save_tower=-1.'
  )
