"""One of the processes of `test_multi_worker`: fits the small model.

    worker_process.py FOLDER CODEC...

TF_CONFIG says which one it is. For each codec, `none` for Keras alone, it
writes FOLDER/<codec's number>-<rank>.npz: arrays of all variables and states.
"""

import json
import os
import pathlib
import sys

import numpy as np
import tensorflow as tf

STRATEGY = tf.distribute.MultiWorkerMirroredStrategy()
RANK = json.loads(os.environ['TF_CONFIG'])['task']['index']


def main(folder, codecs):
  # Not before the strategy: what they import uses TensorFlow.
  import keras

  import terngrad.keras
  from tests.keras import small

  assert terngrad.keras.repair_multi_worker()
  assert not terngrad.keras.repair_multi_worker()
  small.strategy = lambda replicas: STRATEGY
  for number, codec in enumerate(codecs):
    made = small.compiled(None if codec == 'none' else codec, replicas=2)
    callbacks = []
    if codec != 'none':
      callbacks.append(terngrad.keras.CompressionMetrics())
    history = small.fit(made, epochs=1, callbacks=callbacks)
    # Each process has a file of its own: with its own states.
    made.save(folder / f'{number}-{RANK}.keras')
    with STRATEGY.scope():
      made = keras.models.load_model(folder / f'{number}-{RANK}.keras')
    small.fit(made, epochs=1)
    arrays = small.weights(made)
    np.savez(
      folder / f'{number}-{RANK}.npz',
      *arrays,
      bits=history.get('bits_per_element', [0]),
    )


if __name__ == '__main__':
  main(pathlib.Path(sys.argv[1]), sys.argv[2:])
