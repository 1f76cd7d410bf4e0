"""Trains a net on MNIST with compressed gradients."""

import sys

from terngrad.program import main

USAGE = """\
mnist_train: trains a net on MNIST, on the devices of one machine.

  mnist_train --data_dir=D --train_dir=T --num_gpus=2 --num_nodes=4 \\
      --grad_bits=1 --clip_factor=2.5 --quantize_logits=True

Every node computes gradients on its part of the batch; with --grad_bits=1 they
are sent as codes of -1, 0 and +1. The same command continues a run that was
stopped. Fill D with: python -m slim.download_and_convert_data \\
--dataset_name mnist --dataset_dir D
"""

DEFAULTS = {
  'dataset_name': 'mnist',
  'image_size': 28,
  'max_steps': 10000,
  'net': 'lenet',
}


def run():
  """Runs the program; returns the exit code."""
  return main.run_training(USAGE, DEFAULTS)


if __name__ == '__main__':
  sys.exit(run())
