"""Steps are reported as soon as they are built, and again after the rounds."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from terngrad.measure import step_table
from terngrad.measure.gpu import parts
from terngrad.measure.gpu import training

GPU, CPU = '/GPU:0', '/CPU:0'


@pytest.fixture
def clock(monkeypatch):
  """A clock that steps advance, in seconds."""
  now = [0.0]
  for module in (training, step_table.timing):
    monkeypatch.setattr(module.time, 'perf_counter', lambda: now[0])
  return now


def kinds_of(clock, seconds, order):
  """Returns builders of steps that take `seconds`, and log their order."""

  def build(kind):
    order.append(kind)
    clock[0] += 10

    def step():
      clock[0] += seconds[kind]

    return step

  return {kind: lambda k=kind: build(k) for kind in seconds}


SECONDS = {
  step_table.TOWERS: 0.0101,
  'ternary, 1 nodes': 0.02,
  step_table.KERAS: 0.011,
  step_table.KERAS_COMPILED: 0.010,
}


def test_keras_comes_first_and_ratios_are_to_its_faster_kind(clock):
  order, found = [], []
  kinds = kinds_of(clock, SECONDS, order)
  training.compare(kinds, parts.CheckSettings(GPU, False), found.append)
  assert order[:2] == [step_table.KERAS, step_table.KERAS_COMPILED]
  names = [figure.name for figure in found]
  assert names[:2] == [
    'plain Keras, until the first step ends',
    'plain Keras',
  ]
  assert found[0].value == pytest.approx(10.011)
  last = {figure.name: figure for figure in found}
  towers = last['float32 towers, ratio']
  assert towers.value == 1.01 and not towers.exceeds_limit
  coded = last['ternary, 1 nodes, ratio']
  assert coded.value == 2 and coded.limit == 1.05 and coded.exceeds_limit
  # Once when built, once after the rounds.
  assert names.count('ternary, 1 nodes') == 2


@pytest.mark.parametrize(
  'settings', [parts.CheckSettings(CPU, False), parts.CheckSettings(GPU, True)]
)
def test_limits_are_for_gpus_and_full_sizes(clock, settings):
  found = []
  training.compare(kinds_of(clock, SECONDS, []), settings, found.append)
  assert all(figure.limit is None for figure in found)


@pytest.mark.parametrize(
  'kind', ['ternary, 1 nodes', step_table.KERAS_COMPILED]
)
def test_a_kind_that_fails_is_reported_and_the_others_are_compared(clock, kind):
  def fails():
    raise tf.errors.ResourceExhaustedError(None, None, 'no memory')

  found = []
  kinds = {**kinds_of(clock, SECONDS, []), kind: fails}
  training.compare(kinds, parts.CheckSettings(GPU, False), found.append)
  last = {figure.name: figure for figure in found}
  assert last[kind].value == 'failed: ResourceExhaustedError no memory'
  assert last[kind].exceeds_limit
  keras = 0.011 if kind == step_table.KERAS_COMPILED else 0.010
  ratio = last['float32 towers, ratio'].value
  assert ratio == pytest.approx(0.0101 / keras, abs=0.001)


def test_without_keras_there_are_times_and_no_ratios(clock):
  found = []
  kinds = kinds_of(clock, {step_table.TOWERS: 0.5}, [])
  training.compare(kinds, parts.CheckSettings(GPU, False), found.append)
  assert [figure.name for figure in found][1:] == [step_table.TOWERS] * 2


@pytest.mark.slow
def test_transformers_of_keras_and_of_float32_replicas_have_the_same_loss():
  kinds = training._kinds(CPU, training._SHORT_TEXTS)
  coded = [step_table.coded_kind('ternary', n) for n in (1, 4)]
  assert [*kinds] == [step_table.TOWERS, *coded, *step_table.KERAS_KINDS]
  losses = {}
  for kind, build in kinds.items():
    keras.utils.set_random_seed(1)
    step = build()
    if kind in step_table.KERAS_KINDS:
      # Keras reports the mean over the steps.
      sums = np.array([1, 2, 3]) * [float(step()['loss']) for _ in range(3)]
      losses[kind] = np.diff(sums, prepend=0.0)
    else:
      losses[kind] = np.array([np.mean(step().entropy) for _ in range(3)])
  expected = losses.pop(step_table.KERAS)
  for kind in coded:
    # The first step begins with the same parameters.
    found = losses.pop(kind)
    assert found[0] == pytest.approx(expected[0], rel=1e-4)
  for found in losses.values():
    np.testing.assert_allclose(found, expected, rtol=1e-4)
