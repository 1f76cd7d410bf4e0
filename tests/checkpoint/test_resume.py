"""Continuing from checkpoints, to the bit or not at all."""

import types

import numpy as np
import pytest

from terngrad import errors
from terngrad.checkpoint import checkpoints
from terngrad.checkpoint import resume
from terngrad.checkpoint import stored_states
from terngrad.step import replicas
from tests.step import small

LAYOUT = checkpoints.Layout(
  net='small',
  num_classes=5,
  optimizer='momentum',
  num_devices=2,
  num_workers=2,
  places=[0, 1],
  max_steps=100,
  batch_size=8,
  seed=11,
  dataset_name='mnist',
  subset='train',
  codec='float32_words',
)


def opened(folder, build=small.dense_net, changes=(), **options):
  """(training, what `resume` needs of a run, writer, configuration)."""
  training = small.Training(
    build, devices=2, workers=2, codec='identity', **options
  )
  names = replicas.variable_names(training.plan, training.replicas[0])
  layout = LAYOUT._replace(**dict(changes))
  parameters = names[: len(training.replicas[0].trainable)]
  run = types.SimpleNamespace(
    replicas=training.replicas,
    names=names,
    layout=layout,
    method_states=[],
    store=stored_states.Store(
      training.states, training.codec, training.exchange, parameters
    ),
  )
  writer = checkpoints.Writer(str(folder), layout, training.replicas, names)
  return training, run, writer, types.SimpleNamespace(train_dir=str(folder))


@pytest.mark.parametrize(
  ('build', 'changes', 'options'),
  [
    (small.dense_net, {'dtype': 'float16'}, {'scaling': (4.0, 1998.0)}),
    (
      small.conv_net,
      {'bn_statistics': 'per_device'},
      {'own_statistics': True},
    ),
  ],
)
def test_a_run_goes_on_to_the_same_bits(tmp_path, build, changes, options):
  # The loss scale doubles in the step after the checkpoint.
  whole, _, writer, _ = opened(tmp_path, build, changes, **options)
  whole.run(1)
  writer.save(1)
  whole.run(2, first=1)
  again, run, _, config = opened(tmp_path, build, changes, **options)
  said = []
  assert resume.continue_run(config, run, said.append).step == 1
  assert len(said) == 1
  again.run(2, first=1)
  for place in range(2):
    np.testing.assert_array_equal(again.values(place), whole.values(place))


@pytest.mark.parametrize(
  ('field', 'value'),
  [
    ('batch_size', 16),
    ('seed', 12),
    ('dataset_name', 'cifar10'),
    ('subset', 'test'),
    ('trainable_scopes', 'logits'),
    ('bn_statistics', 'per_device'),
  ],
)
def test_a_run_of_other_examples_or_variables_is_not_continued(
  field, value, tmp_path
):
  _, run, writer, config = opened(tmp_path)
  writer.save(1)
  run.layout = run.layout._replace(**{field: value})
  with pytest.raises(
    errors.CheckpointError,
    match=f'with {field} {value}, received one with {getattr(LAYOUT, field)}',
  ):
    resume.continue_run(config, run, None)


def test_devices_with_their_own_statistics_stay_as_many(tmp_path):
  _, run, writer, config = opened(
    tmp_path, changes={'bn_statistics': 'per_device'}, own_statistics=True
  )
  writer.save(1)
  run.layout = run.layout._replace(num_devices=3)
  with pytest.raises(errors.CheckpointError, match='num_devices 3'):
    resume.continue_run(config, run, None)


@pytest.mark.parametrize(
  ('field', 'value'),
  [('codec', 'ternarize > base3'), ('dtype', 'bfloat16'), ('num_workers', 4)],
)
def test_what_changes_only_the_bits_is_said(field, value, tmp_path):
  _, run, writer, config = opened(tmp_path)
  writer.save(1)
  run.layout = run.layout._replace(**{field: value})
  said = []
  assert resume.continue_run(config, run, said.append).step == 1
  assert (
    f'{field} was {getattr(LAYOUT, field)} before and is now {value}'
    in (said[-1])
  )


def test_a_checkpoint_that_does_not_say_is_not_held_against_the_run(tmp_path):
  before = {'batch_size': None, 'seed': None, 'dataset_name': None}
  _, run, writer, config = opened(
    tmp_path, changes=before | {'subset': None, 'codec': None}
  )
  writer.save(1)
  run.layout = LAYOUT
  said = []
  assert resume.continue_run(config, run, said.append).step == 1
  assert len(said) == 1


def test_a_loss_scale_begins_anew_where_there_was_none(tmp_path):
  _, _, writer, _ = opened(tmp_path)
  writer.save(1)
  training, run, _, config = opened(
    tmp_path, changes={'dtype': 'float16'}, scaling=(8.0, 3.0)
  )
  assert resume.continue_run(config, run, lambda line: None).step == 1
  for replica in training.replicas:
    assert [float(v) for v in replica.scaling] == [8.0, 3.0]
