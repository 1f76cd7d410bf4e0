"""X_train and X_eval of each data set, on a small one in its own files."""

import re
from typing import NamedTuple

import pytest

from slim import download_and_convert_data
from tests.bin import programs
from tests.slim import archives_made


class Case(NamedTuple):
  """A data set's programs and what they must find.

  Attributes:
    programs: 'cifar10' for cifar10_train and cifar10_eval.
    examples: of the split that is scored.
    classes: logits.
    flags: for both programs, beside their own defaults.
  """

  programs: str
  examples: int
  classes: int
  flags: dict


CASES = [Case('cifar10', 4, 10, {})]


def convert(name, source_dir, folder):
  options = download_and_convert_data.Config(
    dataset_name=name,
    dataset_dir=str(folder),
    source_dir=str(source_dir),
    verify_checksums=False,
  )
  download_and_convert_data.main(options)


def write_cifar10(folder):
  (folder / 'source').mkdir(parents=True)
  archive = archives_made.cifar_binary(archives_made.cifar())
  (folder / 'source' / 'cifar-10-binary.tar.gz').write_bytes(archive)
  convert('cifar10', folder / 'source', folder / 'data')


WRITERS = {'cifar10': write_cifar10}


@pytest.mark.parametrize('case', CASES, ids=lambda case: case.programs)
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
      num_gpus=2,
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
