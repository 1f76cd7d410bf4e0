"""The program, started as its users start it."""

import os

import pytest

from tests.slim import photograph_files
from tests.slim import programs


def start(folder, *arguments):
  return programs.start('make_image_db', *arguments, folder=folder)


@pytest.fixture
def arguments(tmp_path):
  for number in range(5):
    path = tmp_path / 'photos' / 'train' / f'class {number % 2}'
    path.mkdir(parents=True, exist_ok=True)
    content = photograph_files.jpeg(photograph_files.pixels(8, 9, number))
    (path / f'{number}.jpg').write_bytes(content)
  return [
    '--dataset_name=image_folder',
    f'--dataset_dir={tmp_path / "photos"}',
    f'--output_db={tmp_path / "db" / "train"}',
  ]


def test_makes_a_database_with_labels_beside_it(tmp_path, arguments):
  first = start(tmp_path, *arguments)
  assert first.returncode == 0, first.stderr
  assert first.stdout == f'Wrote {tmp_path}/db/train: 5 images, lmdb.\n'
  assert os.listdir(tmp_path / 'db' / 'train') == ['data.mdb']
  content = (tmp_path / 'db' / 'labels.txt').read_text()
  assert content == '0:class 0\n1:class 1\n'
  second = start(tmp_path, *arguments)
  assert (second.returncode, second.stdout) == (1, '')
  assert 'expected a name that is free' in second.stderr.splitlines()[-1]


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    (['--dataset_name=image_db'], "received 'image_db'"),
    (['x'], "flags only, received the word 'x'"),
    (['--db_type=lmbd'], "Did you mean 'lmdb'"),
    (['--seed=-1'], 'seed: expected a number >= 0'),
  ],
)
def test_bad_arguments_exit_with_2(tmp_path, arguments, changes, message):
  result = start(tmp_path, *arguments, *changes)
  assert (result.returncode, result.stdout) == (2, '')
  assert message in result.stderr.splitlines()[-1]
  assert not (tmp_path / 'db').exists()


def test_unusable_data_exits_with_1(tmp_path, arguments):
  result = start(tmp_path, *arguments, '--subset=test')
  assert (result.returncode, result.stdout) == (1, '')
  assert 'a folder of images for each class' in result.stderr.splitlines()[-1]


@pytest.mark.parametrize('shuffled', [[], ['--shuffle', '--seed=3']])
def test_verify_compares_every_record_and_writes_nothing(
  tmp_path, arguments, shuffled
):
  assert start(tmp_path, *arguments, *shuffled).returncode == 0
  path = tmp_path / 'db' / 'train' / 'data.mdb'
  before = path.read_bytes()
  done = start(tmp_path, *arguments, *shuffled, '--verify')
  assert done.returncode == 0, done.stderr
  assert 'images, all as in the data set' in done.stdout
  assert path.read_bytes() == before
  # Another order is another database.
  done = start(tmp_path, *arguments, '--shuffle', '--seed=4', '--verify')
  assert done.returncode == 1
  assert 'key 0000000' in done.stderr and 'received others' in done.stderr
