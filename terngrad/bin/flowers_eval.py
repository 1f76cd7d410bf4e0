"""Evaluates the checkpoints of flowers_train."""

import sys

from terngrad.program import main

USAGE = """\
flowers_eval: scores the checkpoints of flowers_train.

  flowers_eval --data_dir=D --checkpoint_dir=T --eval_dir=E --run_once

Without --run_once it scores every new checkpoint until the last step's.
"""

DEFAULTS = {
  'dataset_name': 'flowers',
  'image_size': 299,
  'net': 'inception_v3',
  'num_examples': 500,
}


def run():
  """Runs the program; returns the exit code."""
  return main.run_evaluation(USAGE, DEFAULTS)


if __name__ == '__main__':
  sys.exit(run())
