"""A data set's programs: one entry, as CONTRIBUTING.md says."""

import pytest

from terngrad.cli import command
from terngrad.cli import commands
from terngrad.cli import flags
from terngrad.cli import presets
from terngrad.config import training as configs
from terngrad.training import evaluation

MINE = presets.Preset(
  'photographs of mine',
  '--net=lenet',
  'Fill D by hand.',
  {'dataset_name': 'images', 'image_size': 32},
  training={'batch_size': 8},
  evaluation={'num_examples': 5},
)


def test_one_entry_gives_trainers_and_an_evaluator(monkeypatch):
  monkeypatch.setitem(presets.PRESETS, 'mine', MINE)
  for home, wanted in (
    ('terngrad.cli.train:trainer', {'batch_size': 8}),
    ('terngrad.cli.train:server_trainer', {'batch_size': 8}),
    ('terngrad.cli.evaluate:scorer', {'num_examples': 5}),
  ):
    entry = commands._data_set_entries(home)['mine']
    made = commands.load(entry)
    assert isinstance(made, command.Command)
    assert made.defaults == MINE.model | wanted
    values = flags.parse(made.options, made.defaults, []).values
    assert (values.data.dataset_name, values.data.image_size) == ('images', 32)
    assert 'photographs of mine' in made.usage


def test_every_data_set_has_its_commands():
  names = set(presets.PRESETS)
  for group in ('train', 'eval'):
    assert names <= set(commands.COMMANDS[group].members)
  # Parameter servers take images only.
  assert set(commands.COMMANDS['distributed_train'].members) == names - {'text'}


@pytest.mark.parametrize(
  ('words', 'steps'),
  [([], configs.EvalConfig().run.max_steps), (['--max_steps=7'], 7)],
)
@pytest.mark.parametrize('data_set', ['mnist', 'imagenet'])
def test_an_evaluation_is_as_long_as_its_run_by_default(
  monkeypatch, data_set, words, steps
):
  """`training.evaluation` takes the general default for that."""
  configured = []
  monkeypatch.setattr(
    evaluation, 'evaluate', lambda config, report: configured.append(config)
  )
  made = commands.command_at(('eval', data_set))
  made.act(flags.parse(made.options, made.defaults, words).values)
  (config,) = configured
  assert config.run.max_steps == steps
