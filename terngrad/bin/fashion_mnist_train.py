"""Trains a net on Fashion-MNIST with compressed gradients."""

import sys

from terngrad.program import main

USAGE = """\
fashion_mnist_train: trains a net on Fashion-MNIST.

  fashion_mnist_train --data_dir=D --train_dir=T --num_gpus=2 \\
      --grad_bits=1 --clip_factor=2.5 --quantize_logits=True

Fill D with: python -m slim.download_and_convert_data \\
--dataset_name fashion_mnist --dataset_dir D
"""

DEFAULTS = {
  'dataset_name': 'fashion_mnist',
  'image_size': 28,
  'max_steps': 10000,
  'net': 'lenet',
}


def run():
  """Runs the program; returns the exit code."""
  return main.run_training(USAGE, DEFAULTS)


if __name__ == '__main__':
  sys.exit(run())
