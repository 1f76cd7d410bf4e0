"""An option says all that is known of it, where it is declared."""

import dataclasses

import pytest

from terngrad import errors
from terngrad.cli import flags
from terngrad.cli.report import gradients
from terngrad.config import optimizer
from terngrad.config import options
from terngrad.config import servers
from terngrad.config import training as configs

CONFIGURATIONS = (
  configs.TrainConfig,
  configs.EvalConfig,
  servers.ServerConfig,
  gradients.Config,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Warm(optimizer.OptimizerOptions):
  """A part with one option more, added as CONTRIBUTING.md says."""

  warmth: float = options.option(
    0.5, 'Warmth of the gradients, in degrees.', on_resume=options.REFUSED
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class WithAnother(configs.TrainConfig):
  """A run with that part."""

  optimizer: Warm = options.part(Warm)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bounded(options.ConfigPart):
  """Options that say their ranges."""

  warmth: float = options.option(0.5, 'Warmth.', least=0, most=1)
  rounds: int = options.option(-1, 'Rounds; -1: as many as it takes.', least=1)


@pytest.mark.parametrize(
  'values', [{}, {'warmth': 1.0}, {'warmth': 0.0, 'rounds': 1}]
)
def test_values_in_the_range_that_an_option_declares_are_taken(values):
  Bounded(**values).validate()


@pytest.mark.parametrize(
  ('values', 'message'),
  [
    ({'warmth': 1.5}, 'warmth: expected a number from 0 to 1, received 1.5'),
    ({'warmth': float('nan')}, 'from 0 to 1, received nan'),
    ({'rounds': 0}, 'rounds: expected a number >= 1, received 0'),
  ],
)
def test_values_outside_the_range_are_refused(values, message):
  with pytest.raises(errors.ConfigError, match=message):
    Bounded(**values).validate()


def test_a_new_option_becomes_a_flag_with_help():
  parsed = flags.parse(WithAnother, {}, ['--warmth=2'])
  assert parsed.values.optimizer.warmth == 2.0
  text = flags.help_text(WithAnother, {}, 'x')
  assert 'Warmth of the gradients' in text[text.index('Optimizer and') :]


def test_a_new_option_is_compared_between_processes():
  shared = options.values(
    options.build(WithAnother, warmth=3.0),
    'shared',
    options.RUN,
    options.WORKERS,
  )
  assert shared['warmth'] == 3.0


def test_a_new_option_is_compared_on_resume():
  fixed = options.values(WithAnother(), 'on_resume', options.REFUSED)
  assert fixed['warmth'] == 0.5


def test_options_local_to_a_process_are_not_compared():
  local = options.values(configs.TrainConfig(), 'shared', options.LOCAL)
  assert set(local) == {
    'cluster',
    'cluster_port',
    'data_dir',
    'job_name',
    'keep_checkpoints',
    'log_device_placement',
    'log_to',
    'overwrite',
    'own_address',
    'pretrained_model_checkpoint_path',
    'pretrained_weights',
    'profile_steps',
    'rendezvous_dir',
    'task_id',
    'train_dir',
  }


def test_options_that_select_examples_are_compared_with_the_chief():
  said = options.values(servers.ServerConfig(), 'shared', options.WORKERS)
  assert {'dataset_name', 'subset', 'batch_size', 'seed', 'image_size'} <= set(
    said
  )
  assert 'initial_learning_rate' not in said


@pytest.mark.parametrize(
  ('name', 'on_resume'),
  [
    ('batch_size', options.REFUSED),
    ('seed', options.REFUSED),
    ('dataset_name', options.REFUSED),
    ('net', options.REFUSED),
    ('initial_learning_rate', options.LOGGED),
    ('learning_rate_decay_type', options.LOGGED),
    ('size_to_binarize', options.LOGGED),
    ('weight_decay', options.LOGGED),
    ('data_dir', options.IGNORED),
    ('save_iter', options.IGNORED),
    ('step_timeout', options.IGNORED),
  ],
)
def test_resume_treats_an_option_as_declared(name, on_resume):
  assert name in options.values(configs.TrainConfig(), 'on_resume', on_resume)


@pytest.mark.parametrize('kind', CONFIGURATIONS)
def test_every_option_has_a_unique_name_and_a_description(kind):
  found = options.fields(kind)
  assert len({option.name for option in found}) == len(found)
  for option in found:
    assert len(option.help) > 5, option.name


@pytest.mark.parametrize('kind', CONFIGURATIONS)
def test_a_part_has_the_name_of_its_group_of_options(kind):
  for option in options.fields(kind):
    assert option.group in options.GROUPS
    # Options of evaluation only may have any group.
    is_free = kind is configs.EvalConfig and option.part == 'run'
    assert is_free or option.part in (option.group, ''), option.name


def test_options_resume_as_their_group_unless_declared_otherwise():
  found = {o.name: o for o in options.fields(configs.TrainConfig)}
  assert found['momentum'].on_resume == options.LOGGED
  assert found['trainable_scopes'].on_resume == options.REFUSED
  assert found['fine_tune'].on_resume == options.IGNORED


def test_a_configuration_is_built_from_names():
  config = options.build(configs.TrainConfig, net='lenet', num_gpus=2)
  assert (config.model.net, config.devices.num_gpus) == ('lenet', 2)
  assert config.data == configs.TrainConfig().data
  said = options.by_name(config)
  assert {option.name for option in options.fields(config)} == set(said)
  assert options.build(configs.TrainConfig, **said) == config


def test_replace_copies_a_configuration_and_shares_unchanged_parts():
  config = options.build(configs.TrainConfig, net='lenet', seed=3)
  other = options.replace(config, net='alexnet', batch_size=64)
  assert (other.model.net, other.model.seed) == ('alexnet', 3)
  assert (other.data.batch_size, config.data.batch_size) == (64, 32)
  # What a scheduler once said of the hosts stays with them.
  assert other.cluster is config.cluster


@pytest.mark.parametrize(
  ('name', 'message'),
  [
    ('nett', "^nett: expected an option of TrainConfig, .*Did you mean 'net'?"),
    ('xyzzy', 'received an unknown name. See --help.'),
    ('model', 'model: expected an option'),
  ],
)
def test_an_unknown_option_is_refused_with_the_most_similar_name(name, message):
  with pytest.raises(errors.ConfigError, match=message):
    options.build(configs.TrainConfig, **{name: 'lenet'})


def test_values_fixed_with_servers_are_no_options():
  with pytest.raises(errors.ConfigError, match='exchange: expected an option'):
    options.build(servers.ServerConfig, exchange='towers')


def test_is_default_recognizes_defaults():
  config = options.build(WithAnother, warmth=1.0)
  assert options.is_default(WithAnother(), 'warmth')
  assert not options.is_default(config, 'warmth')
  assert not options.is_default(config.optimizer, 'warmth')


@pytest.mark.parametrize('value', [float('nan'), float('inf'), -1.0])
def test_numbers_out_of_range_are_refused_by_name(value):
  with pytest.raises(errors.ConfigError, match='warmth: expected a number'):
    options.at_least('warmth', value, 0)
