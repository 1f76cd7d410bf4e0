"""Operations of a pipeline that op determinism would run one by one."""

import tensorflow as tf
from tensorflow.core.framework import graph_pb2
from tensorflow.python.framework import op_def_registry

# TensorFlow lets these run in parallel, also with op determinism.
_ALLOWED = 'Assert', 'Print'
# The functions that these call are looked at.
_CALLS = 'StatefulPartitionedCall', 'If', 'While', 'Case'


def operations(dataset):
  """Types of stateful operations in the functions of a `tf.data.Dataset`."""
  serialized = dataset._as_serialized_graph(
    external_state_policy=tf.data.experimental.ExternalStatePolicy.IGNORE
  )
  graph = graph_pb2.GraphDef.FromString(serialized.numpy())
  found = set()
  for function in graph.library.function:
    for node in function.node_def:
      is_dataset = 'Dataset' in node.op
      if is_dataset or node.op in (*_ALLOWED, *_CALLS):
        continue
      definition = op_def_registry.get(node.op)
      if definition is not None and definition.is_stateful:
        found.add(node.op)
  return found
