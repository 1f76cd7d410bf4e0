"""A recipe's name gives the paper's options, and explicit ones override it."""

import json
import os

import pytest
from absl import logging

import terngrad
from terngrad import errors
from terngrad.cli import flags
from terngrad.codec.methods import registry
from terngrad.config import options as config_options
from terngrad.config import training
from terngrad.local import options
from terngrad.passes import inner_optimizers
from terngrad.recipes import catalog
from terngrad.recipes import recipe as recipes
from terngrad.step import optimizers


def parsed(*words, **defaults):
  return flags.parse(training.TrainConfig, defaults, words).values


@pytest.mark.parametrize('name', catalog.RECIPES)
def test_each_recipe_consists_of_things_that_exist(name):
  found = catalog.find(name)
  assert found.name == name
  assert 'https://arxiv.org/abs/' in found.source
  assert registry.method(found.codec, 2)
  assert optimizers.parse(found.outer, 0.9)
  assert inner_optimizers.parse(found.inner, 0.0).stays
  assert {*found.uncertain} <= {*recipes.FLAGS}


def test_a_recipe_sets_the_flags_that_the_command_line_does_not_set(tmp_path):
  path = tmp_path / 'more.flags'
  path.write_text('--outer_learning_rate=0.5\n')
  config = parsed(
    '--recipe=sparseloco',
    '--local_steps=7',
    f'--flagfile={path}',
    optimizer='adam',
    initial_learning_rate=0.01,
  )
  assert config.devices.local_steps == 7
  assert config.optimizer.outer_learning_rate == 0.5
  assert config.optimizer.optimizer == 'gd'
  assert config.optimizer.inner_optimizer == 'adamw'
  assert config.optimizer.initial_learning_rate == 4e-4
  assert config.codes.codec == catalog.find('sparseloco').codec
  numbers = {'num_nodes': 2, 'batch_size': 14}
  config_options.replace(config, **numbers).validate()


def test_an_unknown_recipe_is_refused_with_a_similar_one():
  message = "received 'sparselocco'.* Did you mean 'sparseloco'"
  with pytest.raises(flags.UsageError, match=message):
    parsed('--recipe=sparselocco')
  with pytest.raises(ValueError, match=message):
    terngrad.LocalSteps(recipe='sparselocco')
  config = terngrad.build_config(training.TrainConfig, recipe='dilco')
  with pytest.raises(errors.ConfigError, match="Did you mean 'diloco'"):
    config.validate()


def test_snoo_is_for_one_worker(monkeypatch):
  words = '--recipe=snoo', '--batch_size=200'
  parsed(*words).validate()
  with pytest.raises(errors.ConfigError, match='at most 1 worker for snoo'):
    parsed(*words, '--num_nodes=2').validate()
  task = {'type': 'worker', 'index': 0}
  cluster = {'worker': ['localhost:1', 'localhost:2']}
  monkeypatch.setitem(
    os.environ, 'TF_CONFIG', json.dumps({'cluster': cluster, 'task': task})
  )
  with pytest.raises(ValueError, match='at most 1 worker for snoo, received 2'):
    terngrad.LocalSteps(recipe='snoo')


def test_a_recipe_without_its_options_is_refused():
  config = terngrad.build_config(training.TrainConfig, recipe='snoo')
  with pytest.raises(errors.ConfigError, match='recipe: expected local_steps'):
    config.validate()


def test_local_steps_take_a_recipe_and_log_what_it_consists_of(monkeypatch):
  logged = []
  monkeypatch.setattr(logging, 'warning', lambda *line: logged.append(line))
  steps = terngrad.LocalSteps(recipe='muloco', every=5)
  found = catalog.find('muloco')
  assert steps.options == options.LocalOptions(
    5, found.codec, found.outer, found.outer_learning_rate
  )
  ((_, line),) = logged
  assert line.startswith('recipe muloco (Thérien et al., 2025, https://arxiv')
  assert 'every=5 (changed; the recipe has 30)' in line
  assert f'codec={found.codec} (not from the paper)' in line


def test_without_a_recipe_the_number_of_local_steps_is_needed():
  with pytest.raises(ValueError, match='every: expected .* or a recipe'):
    terngrad.LocalSteps()
  assert terngrad.LocalSteps(3).options == options.LocalOptions(3)
