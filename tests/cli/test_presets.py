"""A data set's programs: one entry, as CONTRIBUTING.md says."""

import pytest

from terngrad.cli import command
from terngrad.cli import commands
from terngrad.cli import flags
from terngrad.cli import presets
from terngrad.config import options
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


# General defaults, which some of the commands replace.
_GENERAL = configs.EvalConfig()


@pytest.mark.parametrize(
  ('words', 'given'),
  [
    ([], {}),
    (['--max_steps=7'], {'max_steps': 7}),
    (
      [f'--image_size={_GENERAL.data.image_size}', '--run_once'],
      {'image_size': _GENERAL.data.image_size, 'run_once': True},
    ),
  ],
)
@pytest.mark.parametrize('data_set', ['mnist', 'imagenet'])
def test_an_evaluation_overrides_only_what_the_command_line_sets(
  monkeypatch, data_set, words, given
):
  """Size and steps are those of the training, not those of a preset."""
  configured = []
  monkeypatch.setattr(
    evaluation, 'evaluate', lambda config, report: configured.append(config)
  )
  made = commands.command_at(('eval', data_set))
  assert command.run(made, 'eval', words) == command.DONE
  (config,) = configured
  names = ('image_size', 'max_steps', 'run_once')
  assert {name for name in names if config.is_given(name)} == {*given}
  assert options.by_name(config).items() >= given.items()
