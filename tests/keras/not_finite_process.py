"""One of the processes of `test_not_finite`: the last has a gradient of NaN.

    not_finite_process.py

TF_CONFIG says which one it is. It fails where a step that is skipped changes
anything in this process.
"""

import json
import os

import numpy as np
import tensorflow as tf

STRATEGY = tf.distribute.MultiWorkerMirroredStrategy()
RANK = json.loads(os.environ['TF_CONFIG'])['task']['index']


def main():
  # Not before the strategy: what they import uses TensorFlow.
  import keras

  import terngrad.keras
  from tests import not_finite

  codes = not_finite.SOME
  inputs, labels = not_finite.examples(codes)
  bad, _ = not_finite.examples(codes, (np.nan, False, False))
  with STRATEGY.scope():
    keras.utils.set_random_seed(1)
    model = not_finite.model(codes)
    inner = keras.optimizers.SGD(0.1, weight_decay=0.1, use_ema=True)
    model.compile(
      terngrad.keras.CompressedOptimizer(inner, not_finite.rules(codes)),
      'sparse_categorical_crossentropy',
    )
  terngrad.keras.repair_multi_worker()

  def fit(values):
    model.fit(batches(values, labels), verbose=0)

  def arrays():
    variables = (*model.weights, *model.optimizer.variables)
    found = {v.path: v.numpy() for v in variables}
    return found | model.optimizer.compressor.get_states()

  fit(inputs)
  before = arrays()
  fit(bad)
  not_finite.assert_unchanged(arrays(), before)
  fit(inputs)
  assert model.optimizer.iterations.numpy() == 2


def batches(values, labels):
  """A batch of all processes, of which each takes its own two examples."""
  data = tf.data.Dataset.from_tensors((values[RANK], labels[RANK]))
  options = tf.data.Options()
  options.experimental_distribute.auto_shard_policy = (
    tf.data.experimental.AutoShardPolicy.OFF
  )
  return STRATEGY.distribute_datasets_from_function(
    lambda context: data.with_options(options)
  )


if __name__ == '__main__':
  main()
