"""Checkpoints as TensorFlow 1's programs wrote them."""

import os

import tensorflow as tf

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
