"""Trains a net on ImageNet with compressed gradients."""

import sys

from terngrad.program import main

USAGE = """\
imagenet_train: trains a net on ImageNet.

  imagenet_train --data_dir=D --train_dir=T --net=alexnet --num_gpus=2 \\
      --batch_size=256 --grad_bits=1 --clip_factor=2.5 --size_to_binarize=9217

Labels are 1 to 1000 and 0 is the background, so there are 1001 logits. Fill D
with: download_and_preprocess_imagenet D
"""

DEFAULTS = {
  'dataset_name': 'imagenet',
}


def run():
  """Runs the program; returns the exit code."""
  return main.run_training(USAGE, DEFAULTS)


if __name__ == '__main__':
  sys.exit(run())
