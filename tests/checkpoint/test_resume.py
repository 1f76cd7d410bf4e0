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

MUST_KEEP = {
  'net': 'small',
  'num_classes': 5,
  'optimizer': 'momentum',
  'trainable_scopes': '',
  'batch_size': 8,
  'seed': 11,
  'dataset_name': 'mnist',
  'subset': 'train',
  'bn_statistics': 'averaged',
}
MAY_CHANGE = {
  'codec': 'float32_words',
  'dtype': 'float32',
  'num_workers': 2,
  'max_steps': 100,
}
LAYOUT = checkpoints.Layout(
  net='small',
  num_classes=5,
  optimizer='momentum',
  num_devices=2,
  num_workers=2,
  places=[0, 1],
  max_steps=100,
  must_keep=MUST_KEEP,
  may_change=MAY_CHANGE | {'initial_learning_rate': 0.01},
)
# As checkpoints were before they said what must not change.
OLDER = LAYOUT._replace(
  must_keep=None,
  may_change=None,
  **{k: v for k, v in (MUST_KEEP | MAY_CHANGE).items()},
)


def opened(folder, build=small.dense_net, changes=(), **options):
  """(training, what `resume` needs of a run, writer, folder)."""
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
    float_steps=0,
    store=stored_states.Store(training.states, training.exchange, parameters),
  )
  writer = checkpoints.Writer(str(folder), layout, training.replicas, names)
  return training, run, writer, str(folder)


@pytest.mark.usefixtures('eager_functions')
@pytest.mark.parametrize(
  ('build', 'changes', 'options'),
  [
    (small.dense_net, {'dtype': 'float16'}, {'scaling': (4.0, 1998.0)}),
    (
      small.conv_net,
      {'bn_statistics': 'per_device'},
      {'local_statistics': True},
    ),
  ],
)
@pytest.mark.gate_every(2)
def test_a_resumed_run_ends_with_the_same_bits(
  tmp_path, build, changes, options
):
  # The loss scale doubles in the step after the checkpoint.
  whole, _, writer, _ = opened(tmp_path, build, changes, **options)
  whole.run(1)
  writer.save(1)
  whole.run(2, first=1)
  again, run, _, train_dir = opened(tmp_path, build, changes, **options)
  lines = []
  assert resume.continue_run(train_dir, run, lines.append).step == 1
  assert len(lines) == 1
  again.run(2, first=1)
  for place in range(2):
    np.testing.assert_array_equal(again.values(place), whole.values(place))


def test_a_run_does_not_start_beside_a_damaged_checkpoint(tmp_path):
  assert resume.continue_run(str(tmp_path), None, None) == resume.NOT_RESUMED
  (tmp_path / 'model.ckpt-1.index').write_bytes(b'torn')
  with pytest.raises(errors.CheckpointError, match='which is damaged'):
    resume.continue_run(str(tmp_path), None, None)


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
@pytest.mark.parametrize('layout', [LAYOUT, OLDER], ids=['today', 'older'])
def test_a_run_of_other_examples_or_variables_is_not_continued(
  layout, field, value, tmp_path
):
  changes = layout._asdict()
  _, run, writer, train_dir = opened(tmp_path, changes=changes)
  writer.save(1)
  run.layout = LAYOUT._replace(must_keep=MUST_KEEP | {field: value})
  before = MUST_KEEP[field] or "''"
  with pytest.raises(
    errors.CheckpointError,
    match=f'with {field} {value}, received one with {before}',
  ):
    resume.continue_run(train_dir, run, None)


def test_all_devices_resume_from_the_stored_one(tmp_path):
  whole, run, writer, _ = opened(tmp_path, changes={'places': [1]})
  for replica in run.replicas:
    replica.trainable[0].assign(replica.trainable[0] + 1.0)
  writer.save(1)
  again, run, _, train_dir = opened(tmp_path, changes={'places': [1]})
  assert resume.continue_run(train_dir, run, lambda line: None).step == 1
  for place in range(2):
    np.testing.assert_array_equal(again.values(place), whole.values(place))


def test_local_statistics_need_the_same_number_of_devices(tmp_path):
  _, run, writer, train_dir = opened(
    tmp_path,
    changes={
      'bn_statistics': 'per_device',
      'must_keep': MUST_KEEP | {'num_devices': 2},
    },
    local_statistics=True,
  )
  writer.save(1)
  run.layout = run.layout._replace(must_keep=MUST_KEEP | {'num_devices': 3})
  with pytest.raises(errors.CheckpointError, match='num_devices 3'):
    resume.continue_run(train_dir, run, None)


@pytest.mark.usefixtures('eager_functions')
def test_a_run_whose_local_statistics_are_missing_is_not_changed(tmp_path):
  """The checkpoint has only the first of two devices."""
  options = {'build': small.conv_net, 'local_statistics': True}
  whole, _, writer, _ = opened(tmp_path, changes={'places': [0]}, **options)
  whole.run(1)
  writer.save(1)
  again, run, _, train_dir = opened(tmp_path, **options)
  before = again.values()
  with pytest.raises(errors.CheckpointError, match='received none'):
    resume.continue_run(train_dir, run, None)
  np.testing.assert_array_equal(again.values(), before)


@pytest.mark.parametrize(
  ('field', 'value'),
  [('codec', 'ternarize > base3'), ('dtype', 'bfloat16'), ('num_workers', 4)],
)
@pytest.mark.parametrize('layout', [LAYOUT, OLDER], ids=['today', 'older'])
def test_changes_that_affect_only_the_bits_are_logged(
  layout, field, value, tmp_path
):
  changes = layout._asdict()
  _, run, writer, train_dir = opened(tmp_path, changes=changes)
  writer.save(1)
  run.layout = LAYOUT._replace(may_change=MAY_CHANGE | {field: value})
  lines = []
  assert resume.continue_run(train_dir, run, lines.append).step == 1
  assert (
    f'{field} was {MAY_CHANGE[field]} before and is now {value}' in lines[-1]
  )


def test_another_schedule_is_logged_if_the_checkpoint_stores_its_own(tmp_path):
  _, run, writer, train_dir = opened(tmp_path)
  writer.save(1)
  changed = MAY_CHANGE | {'initial_learning_rate': 0.1}
  run.layout = LAYOUT._replace(may_change=changed)
  lines = []
  resume.continue_run(train_dir, run, lines.append)
  assert 'initial_learning_rate was 0.01 before and is now 0.1' in lines[-1]


def test_fields_that_a_checkpoint_lacks_are_not_compared(tmp_path):
  before = {'batch_size': None, 'seed': None, 'dataset_name': None}
  older = OLDER._asdict() | before | {'subset': None, 'codec': None}
  _, run, writer, train_dir = opened(tmp_path, changes=older)
  writer.save(1)
  run.layout = LAYOUT
  lines = []
  assert resume.continue_run(train_dir, run, lines.append).step == 1
  assert len(lines) == 1


def test_a_loss_scale_starts_again_if_the_checkpoint_has_none(tmp_path):
  _, _, writer, _ = opened(tmp_path)
  writer.save(1)
  training, run, _, train_dir = opened(
    tmp_path, changes={'dtype': 'float16'}, scaling=(8.0, 3.0)
  )
  assert resume.continue_run(train_dir, run, lambda line: None).step == 1
  for replica in training.replicas:
    assert [float(v) for v in replica.scaling] == [8.0, 3.0]
