"""X_train and X_eval of each data set, on a small one in its own files."""

import re
from typing import NamedTuple

import pytest

from terngrad.cli.convert import dataset
from terngrad.cli.convert import flowers
from terngrad.cli.convert import images
from tests.bin import programs
from tests.slim import archives_made
from tests.slim import image_files
from tests.slim import mnist_files
from tests.slim import photograph_files
from tests.slim import record_files


class Case(NamedTuple):
  """A data set's programs and what they must find.

  Attributes:
    programs: 'cifar10' for cifar10_train and cifar10_eval.
    examples: of the split that is scored.
    classes: logits.
    flags: for both programs, beside their own defaults.
    devices: of the training.
  """

  programs: str
  examples: int
  classes: int
  flags: dict
  devices: int = 1


# The nets that these programs have by themselves are too large for here.
SMALL = {'net': 'lenet', 'image_size': 28}
CASES = [
  Case('cifar10', 4, 10, {}, devices=2),
  Case('fashion_mnist', 5, 10, {}),
  Case('flowers', 5, 6, SMALL),
  Case('imagenet', 3, 1001, SMALL),
  Case('image', 4, 3, SMALL),
]


def convert(name, folder):
  options = dataset.ConvertDatasetFlags(
    dataset_name=name,
    dataset_dir=str(folder / 'data'),
    source_dir=str(folder / 'source'),
    verify_checksums=False,
  )
  dataset.act(options)


def write_cifar10(folder):
  (folder / 'source').mkdir()
  archive = archives_made.cifar_binary(archives_made.cifar())
  (folder / 'source' / 'cifar-10-binary.tar.gz').write_bytes(archive)
  convert('cifar10', folder)


def write_fashion_mnist(folder):
  mnist_files.write_idx(folder / 'source', train=9, test=5)
  convert('fashion_mnist', folder)


def write_flowers(folder):
  names = ('daisy', 'dandelion', 'roses', 'sunflowers', 'tulips')
  image_files.write_folders(folder / 'flower_photos', dict.fromkeys(names, 3))
  options = flowers.ConvertFlowersFlags(
    output_directory=str(folder / 'data'),
    source_dir=str(folder),
    validation_images=5,
  )
  flowers.act(options)


def write_imagenet(folder):
  (folder / 'data').mkdir()
  pixels = photograph_files.pixels(40, 50)
  example = photograph_files.example_2017(
    photograph_files.jpeg(pixels), 1000, pixels.shape
  )
  for name, count in (('train', 5), ('validation', 3)):
    record_files.write(
      folder / 'data' / f'{name}-00000-of-00001', [example] * count
    )


def write_images(folder):
  for split, count in (('train', 3), ('held', 2)):
    names = dict.fromkeys(('cat', 'dog'), count)
    image_files.write_folders(folder / split, names)
  options = images.ConvertImagesFlags(
    train_directory=str(folder / 'train'),
    validation_directory=str(folder / 'held'),
    output_directory=str(folder / 'data'),
  )
  images.act(options)


WRITERS = {
  'cifar10': write_cifar10,
  'fashion_mnist': write_fashion_mnist,
  'flowers': write_flowers,
  'image': write_images,
  'imagenet': write_imagenet,
}


@pytest.mark.parametrize(
  'case',
  [
    pytest.param(
      case,
      # In the gate small images and photographs of any size.
      marks=[pytest.mark.slow] * (case.programs not in ('cifar10', 'imagenet')),
      id=case.programs,
    )
    for case in CASES
  ],
)
@pytest.mark.slow
def test_trains_and_scores_with_the_defaults_of_its_data_set(
  case, worker, tmp_path
):
  WRITERS[case.programs](tmp_path)
  run = {'data_dir': tmp_path / 'data', 'batch_size': 4, **case.flags}
  trained = worker.run(
    f'{case.programs}_train',
    programs.as_flags(
      **run,
      train_dir=tmp_path / 'train',
      num_gpus=case.devices,
      grad_bits=1,
      clip_factor=2.5,
      max_steps=2,
    ),
  )
  assert trained.code == 0, trained.err
  assert programs.checkpoint_steps(tmp_path / 'train') == [2]
  checkpoint = tmp_path / 'train' / 'model.ckpt-2'
  assert programs.variable(checkpoint, 0, 'logits/bias').size == case.classes
  scored = worker.run(
    f'{case.programs}_eval',
    [
      *programs.as_flags(**run),
      *('--checkpoint_dir', tmp_path / 'train'),
      *('--eval_dir', tmp_path / 'eval', '--run_once'),
    ],
  )
  assert scored.code == 0, scored.err
  assert f'[{case.examples} examples]' in scored.out
  assert re.search(r'precision @ 1 = [01]\.\d{4}', scored.out)
