"""Trains a net on a folder of your own images with compressed gradients."""

import sys

from terngrad.program import main

USAGE = """\
image_train: trains a net on a folder of your own images.

  image_train --data_dir=D --train_dir=T --net=alexnet --num_gpus=2 \\
      --batch_size=64 --grad_bits=1 --clip_factor=2.5

The number of classes is what D says: label 0 is the background. Fill D with:
build_image_data --train_directory=... --validation_directory=... \\
--output_directory=D
"""

DEFAULTS = {
  'dataset_name': 'images',
}


def run():
  """Runs the program; returns the exit code."""
  return main.run_training(USAGE, DEFAULTS)


if __name__ == '__main__':
  sys.exit(run())
