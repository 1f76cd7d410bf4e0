"""Trains as `terngrad train mnist` does, and prints what operations may use.

  python -m tests.cluster.threads_of FLAGS

With `late` before the flags TensorFlow has computed something by then.
"""

import sys

import tensorflow as tf

from terngrad.cli import main as command


def main(words):
  """Prints the threads of an operation; ends as the trainer does."""
  if 'late' in words:
    words.remove('late')
    tf.ones([]).numpy()
  code = command.run(['train', 'mnist', *words])
  threads = tf.config.threading.get_intra_op_parallelism_threads()
  sys.stdout.write(f'{threads} threads\n')
  sys.exit(code)


if __name__ == '__main__':
  main(sys.argv[1:])
