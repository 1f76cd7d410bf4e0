"""An option says all that is known of it, where it is declared."""

import dataclasses

import pytest

from terngrad import errors
from terngrad.cli import flags
from terngrad.config import config as configs
from terngrad.config import options
from terngrad.config import server_config


@dataclasses.dataclass(frozen=True, kw_only=True)
class WithAnother(configs.TrainConfig):
  """A run with one option more, added as CONTRIBUTING.md says."""

  warmth: float = options.option(
    0.5,
    'Warmth of the gradients, in degrees.',
    'rate',
    on_resume=options.KEPT,
  )


def test_a_new_option_is_a_flag_with_help_at_once():
  parsed = flags.parse(WithAnother, {}, ['--warmth=2'])
  assert parsed.values.warmth == 2.0
  assert 'Warmth of the gradients' in flags.help_text(WithAnother, {}, 'x')


def test_a_new_option_is_compared_between_processes_at_once():
  shared = options.values(
    WithAnother(warmth=3.0), 'shared', options.RUN, options.WORKERS
  )
  assert shared['warmth'] == 3.0


def test_a_new_option_is_compared_on_resume_at_once():
  kept = options.values(WithAnother(), 'on_resume', options.KEPT)
  assert kept['warmth'] == 0.5


def test_what_is_a_process_s_own_is_not_compared():
  own = options.values(configs.TrainConfig(), 'shared', options.OWN)
  assert set(own) == {
    'cluster',
    'data_dir',
    'job_name',
    'log_device_placement',
    'overwrite',
    'own_address',
    'pretrained_model_checkpoint_path',
    'pretrained_weights',
    'rendezvous_dir',
    'task_id',
    'train_dir',
  }


def test_what_decides_a_worker_s_examples_is_compared_with_its_chief():
  said = options.values(server_config.ServerConfig(), 'shared', options.WORKERS)
  assert {'dataset_name', 'subset', 'batch_size', 'seed', 'image_size'} <= set(
    said
  )
  assert 'initial_learning_rate' not in said


@pytest.mark.parametrize(
  ('name', 'on_resume'),
  [
    ('batch_size', options.KEPT),
    ('seed', options.KEPT),
    ('dataset_name', options.KEPT),
    ('net', options.KEPT),
    ('initial_learning_rate', options.TOLD),
    ('learning_rate_decay_type', options.TOLD),
    ('size_to_binarize', options.TOLD),
    ('weight_decay', options.TOLD),
    ('data_dir', options.FREE),
    ('save_iter', options.FREE),
    ('step_timeout', options.FREE),
  ],
)
def test_what_resume_does_with(name, on_resume):
  assert name in options.values(configs.TrainConfig(), 'on_resume', on_resume)


def test_every_option_says_what_it_is_for():
  for config in (configs.TrainConfig, configs.EvalConfig):
    for field in options.fields(config):
      assert len(field.metadata['help']) > 5, field.name
      assert field.metadata['group'] in options.GROUPS


def test_a_default_is_known_as_one():
  assert options.is_default(WithAnother(), 'warmth')
  assert not options.is_default(WithAnother(warmth=1.0), 'warmth')


@pytest.mark.parametrize('value', [float('nan'), float('inf'), -1.0])
def test_numbers_outside_are_refused_by_name(value):
  with pytest.raises(errors.ConfigError, match='warmth: expected a number'):
    options.at_least('warmth', value, 0)
