"""Trains a net on CIFAR-10 with parameter servers: one task of the run."""

import sys

from terngrad.program import main

USAGE = """\
cifar10_distributed_train: trains a net on CIFAR-10 with parameter servers.

  cifar10_distributed_train --job_name=ps --task_id=0 \\
      --ps_hosts=localhost:2222 --worker_hosts=localhost:2223,localhost:2224
  cifar10_distributed_train --job_name=worker --task_id=0 --ps_hosts=... \\
      --worker_hosts=... --data_dir=D --train_dir=T --grad_bits=1 \\
      --clip_factor=2.5

Start one process for every host of the two lists. Workers push codes of -1, 0
and +1 and pull their sums; worker 0 writes the checkpoints. --batch_size is
that of one worker. The same commands continue a run that was stopped.
"""

DEFAULTS = {
  'batch_size': 64,
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
  return main.run_distributed_training(USAGE, DEFAULTS)


if __name__ == '__main__':
  sys.exit(run())
