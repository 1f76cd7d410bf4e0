"""Trains in processes that exchange parameters once in `every` batches.

    KERAS_BACKEND=jax terngrad launch -n 2 -- \
      python examples/local_steps.py [FOLDER] [EPOCHS]

The backend may also be tensorflow or torch. FOLDER keeps a backup of each
process: the same command continues a run that was interrupted.
"""

import json
import os
import sys

import keras
import numpy as np

import terngrad.keras


def main(folder='local_steps', epochs='3'):
  task = json.loads(os.environ.get('TF_CONFIG', '{}')).get('task', {})
  rank = task.get('index', 0)
  rng = np.random.default_rng(0)
  inputs, truth = rng.normal(size=(640, 20)), rng.normal(size=(20, 3))
  labels = (inputs @ truth).argmax(axis=1)
  inputs = inputs.astype('float32')
  layer = keras.layers.Dense(3, kernel_initializer='zeros')
  model = keras.Sequential([keras.Input((20,)), layer])
  loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
  model.compile(keras.optimizers.Adam(0.03), loss, metrics=['accuracy'])
  steps = terngrad.keras.LocalSteps(
    every=5, codec='error_feedback+topk:ratio=0.2', outer='nesterov'
  )
  backup = keras.callbacks.BackupAndRestore(f'{folder}/{rank}')
  # Each process trains with every second example.
  x, y = inputs[rank::2], labels[rank::2]
  model.fit(
    x, y, 32, int(epochs), shuffle=False, verbose=2, callbacks=[backup, steps]
  )
  model.save(f'{folder}/{rank}.keras')


if __name__ == '__main__':
  main(*sys.argv[1:])
