"""Models with the parameters of a checkpoint."""

import tensorflow as tf

from slim.nets import factory as nets
from terngrad.training import checkpoints
from terngrad.training import errors
from terngrad.training import replicas


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
