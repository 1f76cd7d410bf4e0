"""An option says all that is known of it, where it is declared."""

import dataclasses

import pytest

from terngrad import errors
from terngrad.checkpoint import pretrained
from terngrad.cli import flags
from terngrad.cluster import coordination
from terngrad.config import options
from terngrad.config import servers
from terngrad.config import training as configs
from terngrad.parameter_server import async_run
from terngrad.step import schedules
from terngrad.training import batches


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
  said = options.values(servers.ServerConfig(), 'shared', options.WORKERS)
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


def test_options_and_properties_are_taken_by_name():
  config = configs.TrainConfig(
    optimizer='adam:epsilon=1.0', initial_learning_rate=0.5, max_steps=7
  )
  taken = options.pick(schedules.Options, config)
  # The learning rate of Adam is fixed, whatever its own options.
  assert taken.optimizer_name == 'adam'
  assert (taken.initial_learning_rate, taken.max_steps) == (0.5, 7)
  assert options.pick(coordination.Options, config).tasks is None


@pytest.mark.parametrize(
  'kind',
  [
    *(batches.Options, schedules.Options, coordination.Options),
    *(pretrained.Options, async_run.Options),
  ],
  ids=lambda kind: kind.__module__,
)
def test_a_task_of_a_cluster_has_all_that_parts_take(kind):
  config = servers.ServerConfig(
    job_name='worker', ps_hosts='localhost:1', worker_hosts='localhost:2'
  )
  taken = options.pick(kind, config)
  assert all(value is not None for value in taken)
