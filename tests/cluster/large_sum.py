"""Lists the operations that TensorFlow makes of a sum of three large tensors.

  python -m tests.cluster.large_sum [keep]

With `keep` after `devices.keep_order_of_sums`.
"""

import sys

import tensorflow as tf
from tensorflow.python.eager import context

from terngrad.cluster import devices
from terngrad.codec.stages import tracing

# Five tensors of 64 MiB, above 0.8 of 256 MiB.
_ELEMENTS = 2**24


@tracing.function
def _total(x):
  return tf.add_n([x + 1.0, x * 3.0, tf.sqrt(x)])


def main(words):
  """Prints their kinds, one a line."""
  if 'keep' in words:
    devices.keep_order_of_sums()
  context.enable_run_metadata()
  _total(tf.ones([_ELEMENTS]))
  graphs = context.export_run_metadata().function_graphs
  for node in graphs[-1].post_optimization_graph.node:
    sys.stdout.write(f'{node.op}\n')


if __name__ == '__main__':
  main(sys.argv[1:])
