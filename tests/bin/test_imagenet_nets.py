"""imagenet_train and imagenet_eval with every kind of net for ImageNet."""

import pytest

from slim.nets import factory
from tests.bin import programs
from tests.slim import imagenet_made

# These are made for smaller images, or for text.
OTHERS = ('cifar', 'gpt', 'lenet', 'slim_lenet', 'small_')
# Between the shallowest and the deepest of their kind; they take half an hour.
BETWEEN = ('_101', '_152', 'slim_vgg_16')
NETS = [
  name
  for name in factory.NETS
  if not name.startswith(OTHERS) and not name.endswith(BETWEEN)
]
# Seconds that a program may take, on a machine that does other work as well:
# TensorFlow traces the deepest nets for minutes.
LIMIT = 3600


@pytest.fixture(scope='module')
def samples(tmp_path_factory):
  """A folder of 40 real photos of 40 synsets, as the split train."""
  photos = imagenet_made.real_samples()
  return imagenet_made.convert_samples(
    photos, tmp_path_factory.mktemp('imagenet'), 2
  )


def run(kind, words):
  """Runs imagenet_train or imagenet_eval; returns what it printed."""
  done = programs.run(
    f'imagenet_{kind}', *programs.as_flags(**words), limit=LIMIT
  )
  assert done.code == 0, done.err
  return done.out


@pytest.mark.slow
@pytest.mark.parametrize('net', NETS)
def test_two_towers_take_a_ternary_step_that_is_scored(net, samples, tmp_path):
  size = factory.NETS[net].default_image_size
  words = {'net': net, 'image_size': size, 'data_dir': samples}
  run(
    'train',
    words
    | {
      'train_dir': tmp_path / 'train',
      'num_gpus': 2,
      'batch_size': 4,
      'grad_bits': 1,
      'clip_factor': 2.5,
      'max_steps': 1,
      'input_queue_memory_factor': 1,
      'save_tower': 0,
    },
  )
  assert programs.checkpoint_steps(tmp_path / 'train') == [1]
  bits = [
    line['bits_per_element']
    for line in programs.metrics(tmp_path / 'train')
    if 'bits_per_element' in line
  ]
  assert bits
  # Ternary: 1.6, a little more where small gradients stay float32.
  assert max(bits) < 3
  printed = run(
    'eval',
    words
    | {
      'subset': 'train',
      'checkpoint_dir': tmp_path / 'train',
      'eval_dir': tmp_path / 'eval',
      'batch_size': 8,
      'run_once': True,
    },
  )
  assert '[40 examples]' in printed
