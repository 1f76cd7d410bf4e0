"""The line for who cannot touch the optimizer, in a process of its own."""

import os
import pathlib
import subprocess
import sys

import pytest

import terngrad.keras

ROOT = pathlib.Path(__file__).resolve().parents[2]
# One strategy a process, so that this is none of the tests' own.
PROGRAM = """
import keras
import numpy as np
import tensorflow as tf
(cpu,) = tf.config.list_physical_devices('CPU')
two = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(cpu, two)
import terngrad.keras
from tests.keras import small

found = {}
for codec in ('identity', 'ternary'):
  reduce = terngrad.keras.CompressedReduce(codec, seed=3)
  strategy = tf.distribute.MirroredStrategy(
    ['CPU:0', 'CPU:1'], cross_device_ops=reduce)
  plain = tf.distribute.MirroredStrategy(
    ['CPU:0', 'CPU:1'], cross_device_ops=tf.distribute.ReductionToOneDevice())
  small.strategy = lambda replicas: strategy
  line = small.compiled(None)
  small.fit(line)
  small.strategy = lambda replicas: plain
  wrapped = small.compiled(codec)
  small.fit(wrapped)
  small.assert_equal(
    [v.numpy() for v in line.weights], [v.numpy() for v in wrapped.weights])
  # Four variables, in each trace.
  assert reduce.compressed and reduce.compressed % 4 == 0, reduce.compressed
  assert reduce.passed == 0

# Statistics of synchronized batch normalization are no gradients.
small.strategy = lambda replicas: strategy
with strategy.scope():
  model = keras.Sequential([
    keras.Input((6,)), keras.layers.Dense(8),
    keras.layers.BatchNormalization(synchronized=True), keras.layers.Dense(3)])
  model.compile('sgd', keras.losses.SparseCategoricalCrossentropy(
    from_logits=True))
before = reduce.compressed
small.fit(model, epochs=1)
assert reduce.passed > 0, reduce.passed
assert (reduce.compressed - before) % 6 == 0
print('done')
"""


@pytest.mark.slow
def test_it_is_the_wrapper_to_the_bit_and_passes_what_is_no_gradient():
  ended = subprocess.run(
    [sys.executable, '-c', PROGRAM],
    capture_output=True,
    check=False,
    env=os.environ | {'PYTHONPATH': str(ROOT), 'TF_CPP_MIN_LOG_LEVEL': '3'},
    text=True,
    timeout=600,
  )
  assert ended.returncode == 0 and 'done' in ended.stdout, ended.stderr
  assert ended.stderr.count('tensors pass as they are') == 1


def test_codes_that_remember_are_refused():
  with pytest.raises(ValueError, match='in no checkpoint'):
    terngrad.keras.CompressedReduce('error_feedback+ternary')
