"""Models are compiled with the inner optimizer of a recipe."""

import keras
import numpy as np
import pytest
from absl import logging

import terngrad
from terngrad import errors
from terngrad.keras import recipe_optimizers
from terngrad.recipes import catalog


def test_muloco_trains_by_muon_at_its_rate():
  made = terngrad.keras.recipe_optimizer('muloco', exclude_layers=['logits'])
  assert isinstance(made, keras.optimizers.Muon)
  assert float(made.learning_rate) == pytest.approx(0.003)
  assert made.exclude_layers == ['logits']
  made = terngrad.keras.recipe_optimizer('diloco', learning_rate=0.5)
  assert isinstance(made, keras.optimizers.AdamW)
  assert float(made.learning_rate) == 0.5


def test_a_muon_with_another_scale_is_refused(monkeypatch):
  class Earlier:
    def __init__(self, learning_rate, adam_lr_ratio=0.1):
      del learning_rate, adam_lr_ratio

  for other in (Earlier, None):
    monkeypatch.setattr(keras.optimizers, 'Muon', other)
    with pytest.raises(
      errors.ConfigError, match='Muon with the option rms_rat'
    ):
      terngrad.keras.recipe_optimizer('muloco')
  terngrad.keras.recipe_optimizer('diloco')


class ChangedMuon(keras.optimizers.Muon):
  pass


def test_another_optimizer_than_that_of_the_recipe_is_logged(monkeypatch):
  logged = []
  monkeypatch.setattr(logging, 'warning', lambda *line: logged.append(line))
  for right in (keras.optimizers.Muon(), ChangedMuon()):
    recipe_optimizers.compare('muloco', right)
    scaled = keras.optimizers.LossScaleOptimizer(right)
    recipe_optimizers.compare('muloco', scaled)
  assert not logged
  recipe_optimizers.compare('muloco', keras.optimizers.SGD())
  assert logged[0][1:] == ('muloco', 'Muon', 'SGD', 'muloco')
  scaled = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD())
  recipe_optimizers.compare('muloco', scaled)
  assert logged[1] == logged[0]


def test_the_callback_takes_the_arguments_of_a_recipe():
  steps = terngrad.keras.LocalSteps(recipe='sparseloco', every=7)._steps
  found = catalog.find('sparseloco')
  assert steps.options.codec == found.codec
  assert (steps.options.every, steps.options.outer) == (7, 'gd')


@pytest.mark.slow
# Of NumPy, when Keras reads variables of TensorFlow.
@pytest.mark.filterwarnings('ignore:__array__ implementation')
def test_a_model_trains_by_snoo_in_one_process():
  rng = np.random.default_rng(0)
  x = rng.normal(size=[64, 8]).astype('float32')
  y = x.sum(axis=1, keepdims=True)
  model = keras.Sequential([keras.Input([8]), keras.layers.Dense(1)])
  optimizer = terngrad.keras.recipe_optimizer('snoo', learning_rate=0.01)
  model.compile(optimizer, 'mse')
  steps = terngrad.keras.LocalSteps(recipe='snoo', every=4)
  history = model.fit(x, y, 8, epochs=5, callbacks=[steps], verbose=0).history
  assert history['loss'][-1] < 0.5 * history['loss'][0]
  assert set(history['sent_bytes']) == {0}
