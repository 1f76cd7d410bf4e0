"""Trains a net on CIFAR-10 with compressed gradients."""

import sys

from terngrad.program import main

USAGE = """\
cifar10_train: trains a net on CIFAR-10, on the devices of one machine.

  cifar10_train --data_dir=D --train_dir=T --num_gpus=2 --batch_size=128 \\
      --grad_bits=1 --clip_factor=2.5 --quantize_logits=True

Training sees random crops of --image_size pixels, evaluation the centre. Fill D
with: python -m slim.download_and_convert_data --dataset_name cifar10 \\
--dataset_dir D
"""

DEFAULTS = {
  'batch_size': 128,
  'dataset_name': 'cifar10',
  'image_size': 24,
  'initial_learning_rate': 0.0002,
  'max_steps': 300000,
  'net': 'cifar10_alexnet',
  'optimizer': 'adam',
  'weight_decay': 0.004,
}


def run():
  """Runs the program; returns the exit code."""
  return main.run_training(USAGE, DEFAULTS)


if __name__ == '__main__':
  sys.exit(run())
