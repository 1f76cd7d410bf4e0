"""The gradients of L2 terms, and their sum with those of the loss."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from terngrad.codec.stages import tracing
from terngrad.reduce import weight_decay

TERMS = {
  'L2': keras.regularizers.L2(0.0123),
  'L1': keras.regularizers.L1(0.3),
  'both': keras.regularizers.L1L2(0.01, 0.02),
  'own': lambda x: 0.1 * tf.reduce_sum(x * x * x),
  'of nothing': lambda x: tf.constant(1.0),
  'none': None,
}


def values(seed):
  rng = np.random.default_rng(seed)
  scale = 10.0 ** rng.integers(-15, 15, 3000)
  drawn = rng.standard_normal(3000) * scale
  return tf.constant([*drawn, 0.0, -0.0, np.inf, np.nan], tf.float32)


def bits(tensor):
  return tensor.numpy().view(np.int32)


def sums(gradient, parameter):
  """{name of a term: its gradient plus the given one}."""
  found = {}
  for name, term in TERMS.items():
    with tf.GradientTape() as tape:
      tape.watch(parameter)
      loss = tf.constant(0.0) if term is None else term(parameter)
    zero = tf.UnconnectedGradients.ZERO
    of_term = tape.gradient(loss, parameter, unconnected_gradients=zero)
    found[name] = gradient if term is None else gradient + of_term
  return found


@pytest.fixture(scope='module')
def expected():
  """{whether it is compiled: `sums`}."""
  # Not as graphs, in which TensorFlow adds more than two terms in any order.
  programs = {False: sums, True: tracing.function(sums, jit_compile=True)}
  return {k: program(values(1), values(0)) for k, program in programs.items()}


@pytest.mark.parametrize('compiles', [False, True])
@pytest.mark.parametrize('name', TERMS)
def test_sums_have_the_bits_of_automatic_differentiation(
  name, compiles, expected
):
  parameter, gradient, term = values(0), values(1), TERMS[name]
  decay = weight_decay.WeightDecay([None, term], compiles).part([1, 0])
  added, same = decay.add([gradient, values(3)], [parameter] * 2)
  np.testing.assert_array_equal(bits(added), bits(expected[compiles][name]))
  np.testing.assert_array_equal(bits(same), bits(values(3)))
  assert decay.has_terms() == [term is not None, False]


def test_only_terms_on_gpus_are_compiled():
  decay = weight_decay.WeightDecay([])
  assert decay.on('/GPU:1').part([])._compiles
  assert not decay.on('/CPU:0')._compiles
