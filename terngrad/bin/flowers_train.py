"""Trains a net on the flower photos with compressed gradients."""

import sys

from terngrad.program import main

USAGE = """\
flowers_train: trains a net on the flower photos.

  flowers_train --data_dir=D --train_dir=T --fine_tune=True \\
      --pretrained_model_checkpoint_path=C --initial_learning_rate=0.001

Labels are 1 to 5 and 0 is the background, so there are 6 logits. Fill D with:
download_and_preprocess_flowers D
"""

DEFAULTS = {
  'dataset_name': 'flowers',
  'image_size': 299,
  'net': 'inception_v3',
}


def run():
  """Runs the program; returns the exit code."""
  return main.run_training(USAGE, DEFAULTS)


if __name__ == '__main__':
  sys.exit(run())
