"""Every flag file in experiments is valid, and every net takes a step."""

import pathlib
import re

import pytest

from terngrad.config import options
from tests.bin import programs
from tests.cli import starters

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = sorted(path.parent for path in ROOT.glob('experiments/*/base.flags'))


def variants(folder):
  """What follows base.flags: a file, or None."""
  files = sorted(folder.glob('*.flags'))
  own = [f for f in files if f.name not in ('base.flags', 'eval.flags')]
  return [None, *own]


RUNS = [(folder, variant) for folder in FOLDERS for variant in variants(folder)]
IDS = [f'{f.name}-{v.stem if v else "base"}' for f, v in RUNS]


def data_set(folder):
  """That of the programs that the header of base.flags names."""
  header = (folder / 'base.flags').read_text(encoding='utf-8')
  return re.search(r'bin\.(\w+)_train', header)[1]


def files(folder, variant):
  paths = [folder / 'base.flags', *([variant] if variant else [])]
  return [f'--flagfile={path}' for path in paths]


def parse(folder, words, kind='train'):
  return starters.parse(f'terngrad.bin.{data_set(folder)}_{kind}', words)


@pytest.mark.parametrize(('folder', 'variant'), RUNS, ids=IDS)
def test_flag_file_is_read_and_valid(folder, variant):
  parse(folder, files(folder, variant)).validate()


@pytest.mark.parametrize('folder', FOLDERS, ids=lambda folder: folder.name)
def test_evaluator_uses_the_trained_net(folder):
  file = folder / 'eval.flags'
  words = [f'--flagfile={file}'] if file.exists() else []
  scored = options.by_name(parse(folder, words, 'eval'))
  trained = options.by_name(parse(folder, files(folder, None)))
  for name in ('net', 'image_size', 'dataset_name'):
    assert scored[name] == trained[name]


@pytest.mark.slow
@pytest.mark.parametrize('folder', FOLDERS, ids=lambda folder: folder.name)
def test_one_step_is_trained(folder, worker, tmp_path):
  """Trains on two devices with one constant image each, without data.

  Uses the last variant: the others differ from it in numbers and codecs only.
  """
  words = files(folder, variants(folder)[-1])
  done = worker.run(
    f'{data_set(folder)}_train',
    [
      *words,
      *programs.as_flags(
        num_gpus=2,
        num_nodes=2,
        batch_size=2,
        max_steps=1,
        benchmark_mode=True,
        train_dir=tmp_path / 'train',
      ),
    ],
  )
  assert done.code == 0, done.err
  assert programs.checkpoint_steps(tmp_path / 'train') == [1]
