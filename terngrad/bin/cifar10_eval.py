"""Evaluates the checkpoints of cifar10_train."""

import sys

from terngrad.program import main

USAGE = """\
cifar10_eval: scores the checkpoints of cifar10_train on the test images.

  cifar10_eval --data_dir=D --checkpoint_dir=T --eval_dir=E --run_once

Without --run_once it scores every new checkpoint until the last step's.
"""

DEFAULTS = {
  'batch_size': 50,
  'dataset_name': 'cifar10',
  'image_size': 24,
  'max_steps': 300000,
  'net': 'cifar10_alexnet',
  'num_examples': 10000,
  'subset': 'test',
  'weight_decay': 0.004,
}


def run():
  """Runs the program; returns the exit code."""
  return main.run_evaluation(USAGE, DEFAULTS)


if __name__ == '__main__':
  sys.exit(run())
