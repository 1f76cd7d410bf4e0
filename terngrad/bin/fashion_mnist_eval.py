"""Evaluates the checkpoints of fashion_mnist_train."""

import sys

from terngrad.program import main

USAGE = """\
fashion_mnist_eval: scores the checkpoints of fashion_mnist_train.

  fashion_mnist_eval --data_dir=D --checkpoint_dir=T --eval_dir=E --run_once

Without --run_once it scores every new checkpoint until the last step's.
"""

DEFAULTS = {
  'dataset_name': 'fashion_mnist',
  'image_size': 28,
  'max_steps': 10000,
  'net': 'lenet',
  'num_examples': 10000,
  'subset': 'test',
}


def run():
  """Runs the program; returns the exit code."""
  return main.run_evaluation(USAGE, DEFAULTS)


if __name__ == '__main__':
  sys.exit(run())
