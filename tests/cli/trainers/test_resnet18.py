"""DJL's flags, and the runs that they describe."""

import pytest

from terngrad import errors
from terngrad.cli import flags
from terngrad.cli.trainers import resnet18
from terngrad.recipes import catalog
from tests.cli import starters

STARTER = 'terngrad.bin.resnet18_trainer'


def config_of(*words):
  return resnet18.to_config(starters.parse(STARTER, words))


@pytest.mark.parametrize(
  ('devices', 'batch', 'rate'), [(1, 256, 0.1), (2, 512, 0.2)]
)
def test_batch_size_and_learning_rate_grow_with_the_devices(
  devices, batch, rate
):
  config = config_of(f'--num_gpus={devices}')
  assert config.data.batch_size == batch
  assert config.optimizer.initial_learning_rate == rate


def test_given_values_are_not_scaled():
  config = config_of('--batch_size=32', '--learning_rate=0.5', '--num_gpus=2')
  assert config.data.batch_size == 32
  assert config.optimizer.initial_learning_rate == 0.5


def test_the_constants_are_those_of_the_chapter():
  config = config_of('--dataset_limit=1000')
  assert (config.data.dataset_name, config.model.net) == (
    'fashion_mnist',
    'small_resnet_18',
  )
  assert (config.run.num_epochs, config.run.eval_subsets) == (10, ('test',))
  assert config.run.epoch_size == 1000
  assert config.optimizer.optimizer == 'gd'
  assert config.optimizer.learning_rate_decay_type == 'fixed'
  assert config.model.weight_decay == 0


@pytest.mark.parametrize(
  ('words', 'rate'),
  [
    ([], catalog.find('diloco').inner_learning_rate),
    (['--learning_rate=0.5'], 0.5),
  ],
)
def test_a_recipe_sets_the_learning_rate_unless_it_is_given(words, rate):
  config = config_of('--recipe=diloco', '--num_gpus=2', *words)
  assert config.optimizer.initial_learning_rate == rate
  assert config.optimizer.inner_optimizer == 'adamw'


@pytest.mark.parametrize(
  ('subsets', 'accuracies'),
  [('test', 'test acc 0.5000, train acc 0.2500'), ('', 'train acc 0.2500')],
)
def test_the_last_line_has_the_accuracies_that_were_measured(
  monkeypatch, tmp_path, capsys, subsets, accuracies
):
  logged = {'step': 2, 'seconds': 4.0, 'accuracy': 0.25, 'epoch_loss': 1.0}
  ended = {'step': 2, 'epoch': 1, 'test_precision_at_1': 0.5}
  monkeypatch.setattr(resnet18.records, 'read', lambda path: [logged, ended])
  config = config_of(f'--eval_subsets={subsets}', f'--train_dir={tmp_path}')
  resnet18._conclude(config, ())
  last, _ = capsys.readouterr().out.splitlines()
  assert last.endswith(f': {accuracies}, 4.0 s/epoch')


def test_steps_beside_epochs_are_refused():
  with pytest.raises(flags.UsageError, match='--max_steps: .* --num_epochs=10'):
    config_of('--max_steps=100')


@pytest.mark.parametrize(
  'word', ['--batch_size=-1', '--dataset_limit=-1', '--learning_rate=nan']
)
def test_numbers_out_of_their_range_are_refused(word):
  with pytest.raises(errors.ConfigError, match=r'expected a number >= 0'):
    config_of(word)
