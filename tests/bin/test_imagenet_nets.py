"""imagenet_train and imagenet_eval with every net that is made for ImageNet."""

import os
import pathlib
import tarfile

import pytest

from slim import build_imagenet_data
from slim.nets import factory
from tests.bin import programs

# These are made for smaller images.
OTHERS = ('cifar10_alexnet', 'cifarnet', 'lenet', 'slim_lenet')
NETS = [name for name in factory.NETS if name not in OTHERS]
# Seconds that a program may take, on a machine that does other work as well:
# TensorFlow traces the deepest nets for minutes.
LIMIT = 3600


@pytest.fixture(scope='module')
def samples(tmp_path_factory):
  """A folder of 40 real photos of 40 synsets, as the split train."""
  source = os.getenv('TERNGRAD_TEST_DATA')
  if not source:
    pytest.skip('TERNGRAD_TEST_DATA names no folder with imagenet_samples_40')
  folder = tmp_path_factory.mktemp('imagenet')
  photos = folder / 'photos'
  with tarfile.open(pathlib.Path(source) / 'imagenet_samples_40.tar') as tar:
    for member in filter(tarfile.TarInfo.isfile, tar):
      synset = pathlib.PurePosixPath(member.name).name.partition('_')[0]
      (photos / synset).mkdir(parents=True)
      content = tar.extractfile(member).read()
      (photos / synset / f'{synset}_1.JPEG').write_bytes(content)
  synsets = sorted(path.name for path in photos.iterdir())
  (folder / 'synsets.txt').write_text('\n'.join(synsets))
  build_imagenet_data.main(
    build_imagenet_data.Config(
      train_directory=str(photos),
      validation_directory='',
      output_directory=str(folder / 'data'),
      train_shards=2,
      labels_file=str(folder / 'synsets.txt'),
      imagenet_metadata_file='',
      bounding_box_file='',
    )
  )
  return folder / 'data'


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
