"""Starting from other runs', TensorFlow 1's and Keras's values."""

import zipfile

import h5py
import numpy as np
import pytest
import tensorflow as tf

from slim.nets import factory as nets
from terngrad import errors
from terngrad.checkpoint import checkpoints
from terngrad.checkpoint import matching_weights
from terngrad.checkpoint import pretrained
from terngrad.checkpoint import sources
from terngrad.config import options as options_lib
from terngrad.config import training as configs
from terngrad.training import assembly
from tests.checkpoint import tf1_checkpoints

# Keras 3's own, on NumPy 2, when it saves.
_KERAS_SAVES = pytest.mark.filterwarnings(
  'ignore:__array__ implementation:DeprecationWarning'
)
LAYERS = {'conv1': (5, 5, 1, 20), 'conv2': (5, 5, 20, 50), 'fc3': (800, 500)}
SIZE = 16


class Started:
  """A LeNet for images of 16 pixels and 10 classes, on two devices."""

  def __init__(self, **options):
    config = options_lib.build(
      configs.TrainConfig,
      net='lenet',
      dataset_name='mnist',
      image_size=SIZE,
      batch_size=4,
      num_gpus=2,
      benchmark_mode=True,
      train_dir='/nowhere/train',
      **options,
    )
    config.validate()
    self.run = assembly.assemble(config)
    self.initial = self.values()
    self.lines = []
    self.step = pretrained.start(config.start, self.run, self.lines.append)
    self.report = '\n'.join(self.lines)

  def values(self, place=0):
    variables = self.run.replicas[place].variables()
    pairs = zip(self.run.names, variables, strict=True)
    return {name: variable.numpy() for name, variable in pairs}


def of_tf1(classes=10, scope='tower_0/'):
  """{name: value} of a LeNet of the 2017 trainers."""
  rng = np.random.default_rng(5)
  values = {}
  for layer, shape in {**LAYERS, 'logits': (500, classes)}.items():
    values[f'{scope}{layer}/weights'] = rng.normal(size=shape)
    values[f'{scope}{layer}/biases'] = rng.normal(size=shape[-1:])
  return {name: np.float32(value) for name, value in values.items()}


def ours(theirs):
  return (
    theirs.removeprefix('tower_0/')
    .replace('weights', 'kernel')
    .replace('biases', 'bias')
  )


def assert_equal_on_all_devices(started, expected):
  for place in range(2):
    values = started.values(place)
    for name, value in expected.items():
      np.testing.assert_array_equal(values[name], value, err_msg=name)


@pytest.mark.parametrize('version', ['V1', 'V2'])
def test_a_checkpoint_of_tensorflow_1_is_restored_and_continued(
  version, tmp_path
):
  values = of_tf1()
  extra = {
    'global_step': np.float32(157585),
    'tower_0/conv1/weights/Momentum': np.ones(LAYERS['conv1'], np.float32),
    'tower_0/conv1/weights/ExponentialMovingAverage': np.full(
      LAYERS['conv1'], 0.25, np.float32
    ),
  }
  path = tf1_checkpoints.write(tmp_path / 'model.ckpt', values | extra, version)
  started = Started(pretrained_model_checkpoint_path=path)
  expected = {ours(name): value for name, value in values.items()}
  averages = {f'{name}/average': value for name, value in expected.items()}
  averages['conv1/kernel/average'] = 0.25
  slots = {'conv1/kernel/momentum': 0.0}
  assert_equal_on_all_devices(started, expected | averages | slots)
  assert started.step == 157585
  assert 'restored 8 variables' in started.report
  assert 'skipped in the file: global_step, tower_0/conv1/weights/Momentum' in (
    started.report
  )
  assert 'initial values used: conv1/kernel/momentum' in started.report


@pytest.mark.parametrize('step', [np.ones(3), np.nan, np.int64(-1), b'x'])
def test_a_step_that_is_no_number_of_steps_is_refused(step, tmp_path):
  values = of_tf1() | {'global_step': step}
  path = tf1_checkpoints.write(tmp_path / 'model.ckpt', values)
  with pytest.raises(errors.CheckpointError, match='the number of steps is'):
    Started(pretrained_model_checkpoint_path=path)


def test_one_bit_adam_does_not_begin_after_its_warm_up(tmp_path):
  values = of_tf1() | {'global_step': np.float32(1000)}
  path = tf1_checkpoints.write(tmp_path / 'model.ckpt', values)
  options = {
    'pretrained_model_checkpoint_path': path,
    'codec': 'one_bit_adam+sign',
    'optimizer': 'gd',
  }
  with pytest.raises(
    errors.CheckpointError, match='expected conv1/kernel/adam_.* of step 1000'
  ):
    Started(**options)
  assert Started(**options, restart_step=True).step == 0


def test_the_newest_checkpoint_of_a_tensorflow_1_folder_is_read(tmp_path):
  tf1_checkpoints.write(tmp_path / 'model.ckpt', of_tf1())
  started = Started(
    pretrained_model_checkpoint_path=str(tmp_path), restart_step=True
  )
  assert started.step == 0
  assert_equal_on_all_devices(
    started, {ours(name): value for name, value in of_tf1().items()}
  )


def test_averages_are_read_where_values_are_missing(tmp_path):
  values = {
    f'{name}/ExponentialMovingAverage': v for name, v in of_tf1().items()
  }
  path = tf1_checkpoints.write(tmp_path / 'model.ckpt', values)
  started = Started(pretrained_model_checkpoint_path=path)
  assert_equal_on_all_devices(
    started, {ours(name): value for name, value in of_tf1().items()}
  )


def test_fine_tuning_leaves_the_logits_and_starts_at_0(tmp_path):
  values = of_tf1(classes=1001) | {'global_step': np.int64(77)}
  path = tf1_checkpoints.write(tmp_path / 'model.ckpt', values)
  started = Started(pretrained_model_checkpoint_path=path, fine_tune=True)
  kept = ('logits/kernel', 'logits/bias')
  expected = {n: started.initial[n] for n in kept} | {
    ours(n): v for n, v in values.items() if '/conv' in n or '/fc' in n
  }
  averages = {f'{name}/average': value for name, value in expected.items()}
  assert_equal_on_all_devices(started, expected | averages)
  assert started.step == 0
  assert 'restored 6 variables' in started.report
  assert 'excluded: logits/kernel, logits/bias' in started.report


@pytest.mark.parametrize('shape', [(500,), (1, 1, 500)])
def test_an_additional_class_is_the_background_and_dropped(shape, tmp_path):
  values = of_tf1(classes=11)
  logits = values['tower_0/logits/weights']
  values['tower_0/logits/weights'] = logits.reshape([*shape, 11])
  path = tf1_checkpoints.write(tmp_path / 'model.ckpt', values)
  started = Started(pretrained_model_checkpoint_path=path)
  assert_equal_on_all_devices(
    started,
    {
      'logits/kernel': logits[:, 1:],
      'logits/bias': values['tower_0/logits/biases'][1:],
    },
  )
  assert 'logits/kernel: class 0, the background, was dropped' in (
    started.report
  )


def test_a_missing_class_is_the_background_and_initialized(tmp_path):
  values = of_tf1(classes=9)
  path = tf1_checkpoints.write(tmp_path / 'model.ckpt', values)
  started = Started(pretrained_model_checkpoint_path=path)
  kernel = started.values()['logits/kernel']
  np.testing.assert_array_equal(kernel[:, 1:], values['tower_0/logits/weights'])
  np.testing.assert_array_equal(
    kernel[:, 0], started.initial['logits/kernel'][:, 0]
  )
  assert 'background, was added with its initial value' in started.report


def test_scopes_are_excluded_by_their_names_in_tf_slim(tmp_path):
  path = tf1_checkpoints.write(tmp_path / 'model.ckpt', of_tf1(scope='LeNet/'))
  started = Started(
    pretrained_model_checkpoint_path=path,
    checkpoint_exclude_scopes='LeNet/logits, LeNet/fc3/weights',
  )
  kept = ('fc3/kernel', 'logits/kernel', 'logits/bias')
  assert_equal_on_all_devices(started, {n: started.initial[n] for n in kept})
  assert f'excluded: {", ".join(kept)}' in started.report


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    ({}, r'expected fc3/kernel, .* file without these.*--ignore_missing'),
    (
      {'checkpoint_exclude_scopes': 'LeNet/fc9'},
      'expected scopes of lenet, received LeNet/fc9.*Name layers such as conv2',
    ),
    (
      {'checkpoint_exclude_scopes': 'fc3', 'trainable_scopes': 'Other/fc'},
      'trainable_scopes: expected scopes of lenet',
    ),
  ],
)
def test_missing_variables_and_unknown_scopes_are_refused(
  options, message, tmp_path
):
  values = of_tf1()
  del values['tower_0/fc3/weights']
  path = tf1_checkpoints.write(tmp_path / 'model.ckpt', values)
  with pytest.raises(errors.ConfigError, match=message):
    Started(pretrained_model_checkpoint_path=path, **options)


def test_missing_variables_are_initialized_if_allowed(tmp_path):
  values = of_tf1()
  del values['tower_0/fc3/weights']
  path = tf1_checkpoints.write(tmp_path / 'model.ckpt', values)
  started = Started(
    pretrained_model_checkpoint_path=path,
    ignore_missing_vars=True,
    restart_step=True,
  )
  assert_equal_on_all_devices(
    started, {'fc3/kernel': started.initial['fc3/kernel']}
  )
  assert 'not in the file, initial values used: fc3/kernel' in started.report


def test_another_shape_is_refused_with_the_flag_that_excludes_it(tmp_path):
  values = of_tf1(classes=7)
  path = tf1_checkpoints.write(tmp_path / 'model.ckpt', values)
  with pytest.raises(
    errors.CheckpointError,
    match=r'logits/kernel of shape \[500, 10\], received \[500, 7\].*'
    '--checkpoint_exclude_scopes=logits',
  ):
    Started(pretrained_model_checkpoint_path=path)


def test_slots_are_restored_except_those_of_excluded_variables():
  names = ['conv1/kernel', 'fc3/kernel']
  slots = [f'{name}/{of}' for name in names for of in ('average', 'momentum')]
  values = {n: tf.zeros([3]) for n in (*names, *slots, 'loss_scale', 'new')}
  source = sources.WeightSource(
    'there',
    {name: [3] for name in values if name != 'new'} | {slots[1]: [4]},
    unexpected=[],
    step=7,
    read=str.upper,
  )
  assert pretrained._read_state(source, values, names, ['fc3/kernel']) == {
    'conv1/kernel/average': 'CONV1/KERNEL/AVERAGE',
    'loss_scale': 'LOSS_SCALE',
  }


def test_a_line_of_the_report_has_twenty_names():
  names = [f'conv{i}' for i in range(22)]
  assert pretrained._list(names[:20]) == ', '.join(names[:20])
  assert pretrained._list(names) == f'{", ".join(names[:20])} and 2 more'


def test_a_scalar_matches_only_a_scalar():
  assert matching_weights._fits([], [], is_head=False) is True
  for received, expected in (([], [1]), ([1], [])):
    assert not matching_weights._fits(received, expected, is_head=True)


def test_a_scalar_is_refused_for_a_kernel(tmp_path):
  values = of_tf1() | {'tower_0/fc3/weights': np.float32(1)}
  path = tf1_checkpoints.write(tmp_path / 'model.ckpt', values)
  with pytest.raises(
    errors.CheckpointError, match=r'fc3/kernel .* received \[\]'
  ):
    Started(pretrained_model_checkpoint_path=path)


@pytest.mark.parametrize('content', [b'', b'no checkpoint at all'])
def test_a_file_that_is_no_checkpoint_is_refused(content, tmp_path):
  path = tmp_path / 'model.ckpt'
  path.write_bytes(content)
  with pytest.raises(errors.CheckpointError, match='that can be read'):
    Started(pretrained_model_checkpoint_path=str(path))


def keras_net():
  model = nets.build('lenet', num_classes=10, image_size=SIZE, seed=33)
  values = {
    v.path.removeprefix('lenet/'): v.numpy() for v in model.trainable_variables
  }
  return model, values


@_KERAS_SAVES
@pytest.mark.parametrize('name', ['net.weights.h5', 'net.keras', 'net.h5'])
def test_weights_that_keras_saved_are_restored(name, tmp_path):
  model, values = keras_net()
  path = str(tmp_path / name)
  if name == 'net.h5':
    write_old_h5(path, values)
  elif name == 'net.keras':
    model.save(path)
  else:
    model.save_weights(path)
  started = Started(pretrained_weights=path)
  averages = {f'{name}/average': value for name, value in values.items()}
  assert_equal_on_all_devices(started, values | averages)
  assert started.step == 0
  assert 'restored 8 variables' in started.report


def write_old_h5(path, values):
  """As Keras 2 did: a group a layer, and the variables' names in it."""
  with h5py.File(path, 'w') as file:
    for name, value in values.items():
      file[f'{name.split("/")[0]}/{name}:0'] = value


@_KERAS_SAVES
def test_only_the_weights_of_an_archive_are_read(tmp_path):
  model, values = keras_net()
  model.save_weights(str(tmp_path / 'net.weights.h5'))
  path = tmp_path / 'net.keras'
  with zipfile.ZipFile(path, 'w') as archive:
    archive.writestr('config.json', '{"class_name": "Lambda", "config": 1}')
    archive.write(tmp_path / 'net.weights.h5', 'model.weights.h5')
  started = Started(pretrained_weights=str(path))
  assert_equal_on_all_devices(started, values)


def _external_link(file, folder):
  with h5py.File(folder / 'secret.h5', 'w') as other:
    other['bias'] = np.zeros(20, np.float32)
  file['conv1/conv1/bias:0'] = h5py.ExternalLink(
    str(folder / 'secret.h5'), '/bias'
  )


def _external_storage(file, folder):
  (folder / 'secret').write_bytes(bytes(80))
  file.create_dataset(
    'conv1/conv1/bias:0',
    shape=(20,),
    dtype='float32',
    external=[(str(folder / 'secret'), 0, 80)],
  )


def _virtual(file, folder):
  layout = h5py.VirtualLayout(shape=(20,), dtype='float32')
  layout[:] = h5py.VirtualSource(str(folder / 'secret.h5'), 'bias', shape=(20,))
  file.create_virtual_dataset('conv1/conv1/bias:0', layout)


def _text(file, folder):
  del folder
  file['conv1/conv1/bias:0'] = ['words'] * 20


@pytest.mark.parametrize(
  ('spoil', 'message'),
  [
    (_external_link, 'expected conv1/bias, received a file without'),
    (_external_storage, 'refers to other files'),
    (_virtual, 'refers to other files'),
    (_text, 'has another type'),
  ],
)
def test_weights_that_are_not_in_the_file_are_refused(spoil, message, tmp_path):
  _, values = keras_net()
  del values['conv1/bias']
  path = str(tmp_path / 'net.h5')
  write_old_h5(path, values)
  with h5py.File(path, 'a') as file:
    spoil(file, tmp_path)
  with pytest.raises(errors.CheckpointError, match=message):
    Started(pretrained_weights=path)


def test_a_weights_file_that_is_damaged_is_refused(tmp_path):
  damaged = tmp_path / 'net.weights.h5'
  damaged.write_bytes(b'\x89HDF\r\n\x1a\n' + bytes(100))
  empty = tmp_path / 'net.keras'
  with zipfile.ZipFile(empty, 'w') as archive:
    archive.writestr('config.json', '{}')
  for path in (damaged, empty, tmp_path / 'none.weights.h5'):
    with pytest.raises(errors.CheckpointError, match='saved by Keras'):
      Started(pretrained_weights=str(path))


@pytest.mark.usefixtures('eager_functions')
def test_the_last_layer_is_trained_first_and_then_all(tmp_path):
  # The recipe of TF-Slim's scripts.
  first = Started(trainable_scopes='LeNet/logits')
  assert (first.step, first.lines) == (0, [])
  run = first.run
  assert run.parameters == ['logits/kernel', 'logits/bias']
  assert run.codec.num_elements == 500 * 10 + 10
  before = first.values()
  images, labels = next(run.batches(0))
  run.float_step.take(
    images,
    labels,
    tf.constant(0, tf.int64),
    tf.constant(0.1),
    tf.constant(0.5),
  )
  folder = tmp_path / 'first'
  checkpoints.Writer(str(folder), run.layout, run.replicas, run.names).save(1)
  after = first.values()
  moved = {
    n for n, v in after.items() if n in before and (v != before[n]).any()
  }
  assert {n.split('/')[0] for n in moved} == {'logits'}
  second = Started(
    pretrained_model_checkpoint_path=str(folder), restart_step=True
  )
  assert second.step == 0
  assert len(second.run.parameters) == 8
  assert_equal_on_all_devices(
    second,
    {
      n: after[n]
      for n in before
      if n in ('conv1/kernel', 'logits/kernel', 'logits/bias')
    },
  )
