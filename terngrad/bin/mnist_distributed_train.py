"""Trains a net on MNIST with parameter servers: one task of the run."""

import sys

from terngrad.program import main

USAGE = """\
mnist_distributed_train: trains a net on MNIST with parameter servers.

  mnist_distributed_train --job_name=ps --task_id=0 \\
      --ps_hosts=localhost:2222 --worker_hosts=localhost:2223,localhost:2224
  mnist_distributed_train --job_name=worker --task_id=0 --ps_hosts=... \\
      --worker_hosts=... --data_dir=D --train_dir=T --grad_bits=1 \\
      --clip_factor=2.5

Start one process for every host of the two lists. Workers push codes of -1, 0
and +1 and pull their sums; worker 0 writes the checkpoints. --batch_size is
that of one worker. The same commands continue a run that was stopped.
"""

DEFAULTS = {
  'dataset_name': 'mnist',
  'image_size': 28,
  'max_steps': 10000,
  'net': 'lenet',
}


def run():
  """Runs the program; returns the exit code."""
  return main.run_distributed_training(USAGE, DEFAULTS)


if __name__ == '__main__':
  sys.exit(run())
