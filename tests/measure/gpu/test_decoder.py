"""The transformer that a GPU is checked with."""

import keras
import numpy as np
import pytest

from terngrad.measure import step_table
from terngrad.measure.gpu import decoder

CPU = '/CPU:0'


@pytest.fixture(scope='module')
def model():
  keras.utils.set_random_seed(1)
  return decoder.build(decoder.SMALL)


def test_full_size_has_25_million_parameters():
  assert 25e6 < decoder.build(decoder.FULL).count_params() < 26e6


def test_logits_depend_on_earlier_tokens_alone(model):
  size = decoder.SMALL
  tokens = np.arange(size.length, dtype=np.int32)[np.newaxis]
  changed = tokens.copy()
  changed[0, 5] += 1
  some, others = (np.asarray(model(one)) for one in (tokens, changed))
  some, others = some[0], others[0]
  assert some.shape == (size.length, size.words)
  np.testing.assert_array_equal(some[:5], others[:5])
  assert np.all(np.any(some[5:] != others[5:], axis=1))


def test_labels_are_the_next_tokens_and_nodes_share_the_batch():
  size = decoder.SMALL
  tokens, labels = decoder._examples(size, 2)
  assert tokens.shape == (2, size.batch // 2, size.length)
  rows = np.reshape(labels, [size.batch, size.length])
  flat = np.reshape(tokens, [size.batch, size.length])
  np.testing.assert_array_equal(rows[:, :-1], flat[:, 1:])


@pytest.mark.slow
def test_keras_and_float32_replicas_have_the_same_loss():
  kinds = decoder.kinds(CPU, decoder.SMALL, 'ternary', (1, 2))
  assert [*kinds] == [
    step_table.TOWERS,
    'ternary, 1 nodes',
    'ternary, 2 nodes',
    *step_table.KERAS_KINDS,
  ]
  losses = {}
  for kind, build in kinds.items():
    keras.utils.set_random_seed(1)
    step = build()
    if kind in step_table.KERAS_KINDS:
      # Keras reports the mean over the steps.
      means = [float(step()['loss']) for _ in range(3)]
      sums = np.array([1, 2, 3]) * means
      losses[kind] = np.diff(sums, prepend=0.0)
    else:
      losses[kind] = np.array([np.mean(step().entropy) for _ in range(3)])
  expected = losses.pop(step_table.KERAS)
  coded = losses.pop('ternary, 1 nodes'), losses.pop('ternary, 2 nodes')
  for found in losses.values():
    np.testing.assert_allclose(found, expected, rtol=1e-4)
  for found in coded:
    # The first step begins with the same parameters.
    assert found[0] == pytest.approx(expected[0], rel=1e-4)
    assert found[2] < found[0]
