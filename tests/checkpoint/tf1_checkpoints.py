"""Checkpoints as TensorFlow 1's programs wrote them."""

import os

import numpy as np
import tensorflow as tf

from terngrad.checkpoint import tf1_names
from tests.checkpoint import published
from tests.slim.nets import outlines

FORMATS = {
  'V1': tf.compat.v1.train.SaverDef.V1,
  'V2': tf.compat.v1.train.SaverDef.V2,
}


def write(path, values, version='V2'):
  """Writes {name: array} with `tf.compat.v1.train.Saver`; returns the prefix.

  The folder's `checkpoint` file is written too.
  """
  v1 = tf.compat.v1
  with tf.Graph().as_default(), v1.Session() as session:
    for name, value in values.items():
      v1.Variable(value, name=name)
    session.run(v1.global_variables_initializer())
    saver = v1.train.Saver(write_version=FORMATS[version])
    return saver.save(session, os.fspath(path), write_meta_graph=False)


def of_slim(net, num_classes):
  """{TF-Slim's name: array}: values with which a net of TF-Slim computes.

  Classifiers of images are convolutions of 1x1 pixels there.
  """
  rng = np.random.default_rng(5)
  model = outlines.named(net, num_classes=num_classes)
  shapes = {outlines.path(model, v): tuple(v.shape) for v in model.weights}
  values = {}
  for theirs in published.OF_SLIM[net]():
    name = tf1_names.translate(net, theirs)
    shape = shapes[name]
    if name.endswith('/kernel'):
      shape = (1, 1, *shape) if len(shape) == 2 else shape
      deviation = np.sqrt(2 / np.prod(shape[:-1]))
      value = deviation * rng.standard_normal(shape, np.float32)
    else:
      value = np.full(shape, name.endswith(('gamma', 'variance')))
    values[theirs] = value.astype(np.float32)
  return values
