"""Trains with a custom loop in two processes that exchange codes.

    terngrad launch -n 2 -- python examples/two_processes.py [CODEC] [STEPS]

`terngrad launch` sets TF_CONFIG for each process. On several machines run it
with --hosts and --rank, or set TF_CONFIG in another way.
"""

import sys

import numpy as np
import tensorflow as tf


def main(codec='error_feedback+topk:ratio=0.05', steps='200'):
  # Create it first: nothing may have used TensorFlow before.
  strategy = tf.distribute.MultiWorkerMirroredStrategy()
  import terngrad

  truth = np.random.default_rng(0).normal(size=(50, 10)).astype('float32')
  compressor = terngrad.Compressor(codec)
  with strategy.scope():
    weights = tf.Variable(tf.zeros([50, 10]), name='weights')

  @tf.function
  def step(number):
    def replica():
      context = tf.distribute.get_replica_context()
      seed = tf.stack(
        [tf.cast(context.replica_id_in_sync_group, tf.int64), number]
      )
      inputs = tf.random.stateless_normal([32, 50], seed)
      with tf.GradientTape() as tape:
        errors = inputs @ (weights - truth)
        loss = tf.reduce_mean(tf.square(errors))
      gradient = tape.gradient(loss, weights)
      # The mean over both processes, compressed.
      (mean,) = terngrad.compress(
        [gradient], compressor, step=number, mean=True
      )
      weights.assign_sub(0.5 * mean)
      return loss

    return strategy.reduce('MEAN', strategy.run(replica), axis=None)

  rank = strategy.cluster_resolver.task_id
  for number in tf.range(int(steps), dtype=tf.int64):
    loss = step(number)
    if (number + 1) % 50 == 0:
      print(f'process {rank}, step {number + 1}: loss {float(loss):.4f}')
  values = tf.bitcast(weights.read_value(), tf.int32)
  print(
    f'process {rank}: weights {int(tf.reduce_sum(values)) & 0xFFFFFFFF:08x}'
  )


if __name__ == '__main__':
  main(*sys.argv[1:])
