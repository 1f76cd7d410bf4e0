"""The graph of operations of a net, for TensorBoard's page of graphs."""

import keras
import tensorflow as tf


def trace(model: keras.Model) -> tf.compat.v1.GraphDef:
  """Returns the operations of a net's forward pass, as in an evaluation.

  Nothing is computed. Unlike a traced function, the graph is not sent to other
  tasks of a cluster.

  Args:
    model: a net with one or more inputs.
  """
  graph = tf.__internal__.FuncGraph('net')
  with graph.as_default():
    inputs = [
      tf.compat.v1.placeholder(each.dtype, each.shape, each.name)
      for each in model.inputs
    ]
    model(inputs if len(inputs) > 1 else inputs[0], training=False)
  return graph.as_graph_def()
