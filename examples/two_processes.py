"""Trains with a custom loop in two processes that exchange codes.

    python examples/two_processes.py [CODEC] [STEPS]

Without TF_CONFIG the program starts itself twice on this machine. On several
machines set TF_CONFIG, as for any program with MultiWorkerMirroredStrategy.
"""

import json
import os
import socket
import subprocess
import sys

import numpy as np
import tensorflow as tf


def start():
  """Runs both processes; returns the worse exit code."""
  sockets = [socket.create_server(('127.0.0.1', 0)) for _ in range(2)]
  hosts = [f'127.0.0.1:{one.getsockname()[1]}' for one in sockets]
  for one in sockets:
    one.close()
  started = []
  for index in range(2):
    task = {'type': 'worker', 'index': index}
    config = json.dumps({'cluster': {'worker': hosts}, 'task': task})
    environment = os.environ | {'TF_CONFIG': config}
    started.append(
      subprocess.Popen([sys.executable, *sys.argv], env=environment)
    )
  return max(abs(process.wait()) for process in started)


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
  sys.exit(main(*sys.argv[1:]) if 'TF_CONFIG' in os.environ else start())
