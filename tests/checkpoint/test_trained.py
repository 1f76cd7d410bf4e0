"""Models with what a checkpoint holds."""

import types

import numpy as np
import pytest
import tensorflow as tf

from terngrad import errors
from terngrad.checkpoint import checkpoints
from terngrad.checkpoint import trained
from tests.checkpoint import test_checkpoints
from tests.checkpoint import test_pretrained
from tests.step import small


def test_the_net_of_a_checkpoint_is_built(tmp_path):
  run = test_pretrained.Started().run
  for replica in run.replicas:
    for average in replica.averages:
      average.assign(average + 1.0)
  writer = checkpoints.Writer(
    str(tmp_path), run.layout, run.replicas, run.names
  )
  writer.save(7)
  options = trained.LoadOptions(
    str(tmp_path), test_pretrained.SIZE, -1, False, ''
  )
  values, averages = (
    trained.load(options._replace(restore_avg_var=averaged), channels=1)
    for averaged in (False, True)
  )
  assert values.step == 7
  assert values.layout == run.layout
  assert values.image_size == test_pretrained.SIZE
  assert values.model.output_shape == (None, 10)
  for one, other, expected in zip(
    values.model.trainable_variables,
    averages.model.trainable_variables,
    run.replicas[0].trainable,
    strict=True,
  ):
    np.testing.assert_array_equal(one, expected)
    np.testing.assert_array_equal(other, expected + 1.0)


def test_the_image_size_and_the_data_options_are_those_of_the_training(
  tmp_path,
):
  run = test_pretrained.Started().run
  writers = {
    name: checkpoints.Writer(
      str(tmp_path / name), layout, run.replicas, run.names
    )
    for name, layout in (
      (
        'new',
        run.layout._replace(
          may_change=run.layout.may_change
          | {'preprocessing': 'cifarnet', 'labels_offset': 1}
        ),
      ),
      ('old', run.layout._replace(must_keep=None, may_change=None)),
    )
  }
  options = trained.LoadOptions(
    writers['new'].save(1), 0, -1, restore_avg_var=False, device=''
  )
  found = trained.load(options, channels=1)
  assert found.image_size == test_pretrained.SIZE
  assert (found.preprocessing, found.labels_offset) == ('cifarnet', 1)
  with pytest.raises(errors.CheckpointError, match='another net, image size'):
    trained.load(options._replace(image_size=28), channels=1)
  # An older checkpoint does not record them.
  older = options._replace(
    checkpoint_dir=writers['old'].save(1), image_size=test_pretrained.SIZE
  )
  found = trained.load(older, channels=1)
  assert (found.preprocessing, found.labels_offset) == ('', 0)


def restored(path, layout, tower):
  """The first values of a model with a node's parameters."""
  model = small.dense_net(seed=77)
  trained.restore(model, path, layout, tower, averaged=False)
  return model.trainable_variables[0].numpy()


@pytest.mark.parametrize(
  ('places', 'held'),
  [((0,), [0, 2]), ((1,), [1, 3]), ((0, 1), [0, 1, 2, 3])],
)
def test_nodes_of_devices_that_are_stored_are_read(places, held, tmp_path):
  # Four nodes on two devices.
  training, _, writer = test_checkpoints.opened(tmp_path, places)
  path, layout = writer.save(1), test_checkpoints.layout(places)
  expected = training.replicas[0].trainable[0].numpy()
  for tower in (-1, *held):
    np.testing.assert_array_equal(restored(path, layout, tower), expected)
  for tower in {0, 1, 2, 3, 4, 5} - set(held):
    with pytest.raises(
      errors.CheckpointError,
      match=rf'one of \[{", ".join(map(str, held))}\], received {tower}\.',
    ):
      restored(path, layout, tower)


def test_probabilities_of_an_image_sum_to_one_and_follow_the_logits():
  model = small.dense_net()
  images = tf.random.stateless_normal([3, small.SIZE, small.SIZE, 1], [1, 2])
  found = trained.probabilities(model, images).numpy()
  np.testing.assert_allclose(found.sum(axis=-1), 1.0, rtol=1e-6)
  ratios = np.log(found[:, 1:] / found[:, :1])
  logits = model(images).numpy()
  np.testing.assert_allclose(ratios, logits[:, 1:] - logits[:, :1], rtol=1e-3)


@pytest.mark.parametrize(
  ('must_keep', 'may_change', 'layout_has', 'expected'),
  [
    ({'dataset_name': 'mnist'}, None, '', 'mnist'),
    (None, {'dataset_name': 'flowers'}, '', 'flowers'),
    ({}, {}, 'cifar10', 'cifar10'),
  ],
)
def test_the_data_set_is_that_of_the_run(
  monkeypatch, must_keep, may_change, layout_has, expected
):
  layout = types.SimpleNamespace(
    must_keep=must_keep, may_change=may_change, dataset_name=layout_has
  )
  monkeypatch.setattr(trained.checkpoints, 'find', lambda folder: f'{folder}/c')
  monkeypatch.setattr(trained.checkpoints, 'read_layout', lambda path: layout)
  assert trained.data_set('T') == expected


def test_a_checkpoint_that_names_no_data_set_is_refused(monkeypatch):
  layout = types.SimpleNamespace(must_keep={}, may_change={}, dataset_name='')
  monkeypatch.setattr(trained.checkpoints, 'find', lambda folder: f'{folder}/c')
  monkeypatch.setattr(trained.checkpoints, 'read_layout', lambda path: layout)
  with pytest.raises(errors.CheckpointError, match='T/c does not say it. Give'):
    trained.data_set('T')


@pytest.mark.parametrize(
  ('size', 'places', 'tower', 'expected'),
  [
    (2, [2], 1, 2),
    (2, [0, 1, 2, 3], 1, 2),
    (2, [0, 1, 2, 3], 2, 0),
    (None, [1], 3, 1),
  ],
)
def test_a_node_reads_the_first_of_its_devices(size, places, tower, expected):
  layout = test_pretrained.Started().run.layout
  more = {'devices_per_worker': size} if size else {}
  layout = layout._replace(
    num_devices=4 if size else 2,
    num_workers=4,
    places=places,
    must_keep={},
    may_change=more,
  )
  assert trained._device_index(tower, 'here', layout) == expected
  with pytest.raises(errors.CheckpointError, match=r'one of \[.*received 4'):
    trained._device_index(4, 'here', layout)
