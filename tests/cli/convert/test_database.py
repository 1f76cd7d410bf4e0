"""The program, started as its users start it."""

import os
import subprocess

import pytest

from slim.datasets import factory
from slim.datasets import write_db
from slim.datasets.files import databases
from slim.datasets.files import tensor_protos
from tests.slim import photograph_files
from tests.slim import programs


@pytest.fixture
def start(worker):
  """Runs the program in the process of all programs."""

  def run(*arguments):
    done = worker.run('slim.make_image_db', arguments)
    return subprocess.CompletedProcess(arguments, *done)

  return run


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


def test_makes_a_database_with_labels_beside_it(start, tmp_path, arguments):
  first = programs.start('make_image_db', *arguments, folder=tmp_path)
  assert first.returncode == 0, first.stderr
  assert first.stdout == f'Wrote {tmp_path}/db/train: 5 images, lmdb.\n'
  assert os.listdir(tmp_path / 'db' / 'train') == ['data.mdb']
  content = (tmp_path / 'db' / 'labels.txt').read_text()
  assert content == '0:class 0\n1:class 1\n'
  second = start(*arguments)
  assert (second.returncode, second.stdout) == (1, '')
  assert 'expected a path that does not exist' in second.stderr.splitlines()[-1]


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    (['--dataset_name=image_db'], "received 'image_db'"),
    (['--dataset_name=text'], "received 'text'"),
    (['x'], "flags only, received the word 'x'"),
    (['--db_type=lmbd'], "Did you mean 'lmdb'"),
    (['--seed=-1'], 'seed: expected a number >= 0'),
    (
      ['--dataset_name=mnist', '--skip_corrupt'],
      '--skip_corrupt: expected --dataset_name=image_folder beside it',
    ),
    (['--seed=3'], '--seed: expected --shuffle beside it'),
  ],
)
def test_bad_arguments_exit_with_2(
  start, tmp_path, arguments, changes, message
):
  result = start(*arguments, *changes)
  assert (result.returncode, result.stdout) == (2, '')
  assert message in result.stderr.splitlines()[-1]
  assert not (tmp_path / 'db').exists()


def test_unusable_data_exits_with_1(start, tmp_path, arguments):
  result = start(*arguments, '--subset=test')
  assert (result.returncode, result.stdout) == (1, '')
  assert 'a folder of images for each class' in result.stderr.splitlines()[-1]


@pytest.mark.parametrize('shuffled', [[], ['--shuffle', '--seed=3']])
def test_verify_compares_every_record_and_writes_nothing(
  start, tmp_path, arguments, shuffled
):
  assert start(*arguments, *shuffled).returncode == 0
  path = tmp_path / 'db' / 'train' / 'data.mdb'
  before = path.read_bytes()
  done = start(*arguments, *shuffled, '--verify')
  assert done.returncode == 0, done.stderr
  assert 'images, all as in the data set' in done.stdout
  assert path.read_bytes() == before
  # Another order is another database.
  done = start(*arguments, '--shuffle', '--seed=4', '--verify')
  assert done.returncode == 1
  assert 'key 0000000' in done.stderr and 'received others' in done.stderr


def test_classes_are_selected_by_name_and_renumbered(
  start, tmp_path, arguments
):
  chosen = ['--classes=class 1,class 0', '--examples_per_class=2']
  done = start(*arguments, *chosen)
  assert done.returncode == 0, done.stderr
  assert done.stdout == f'Wrote {tmp_path}/db/train: 4 images, lmdb.\n'
  content = (tmp_path / 'db' / 'labels.txt').read_text()
  assert content == '0:class 1\n1:class 0\n'
  # Of class 0 are the numbers 0, 2, 4, of class 1 the numbers 1 and 3.
  database = databases.open_database(tmp_path / 'db' / 'train')
  found = [tensor_protos.decode(database.read(i)) for i in range(4)]
  photos = tmp_path / 'photos' / 'train'
  expected = {
    (photos / f'class {number % 2}' / f'{number}.jpg').read_bytes(): label
    for number, label in {0: 1, 2: 1, 1: 0, 3: 0}.items()
  }
  assert {image.encoded: image.label for image in found} == expected
  done = start(*arguments, *chosen, '--verify')
  assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
  ('words', 'code', 'message'),
  [
    (['--classes=clas 0'], 1, "Did you mean 'class 0'"),
    (['--classes=class 0,0'], 1, 'expected each class once'),
    (['--classes=0,7'], 1, 'received none of 7'),
    (['--examples_per_class=3'], 2, 'expected --classes beside it'),
  ],
)
def test_unknown_classes_are_refused(
  start, tmp_path, arguments, words, code, message
):
  result = start(*arguments, *words)
  assert result.returncode == code
  assert message in result.stderr.splitlines()[-1]
  assert not (tmp_path / 'db').exists()


def test_a_split_gets_the_labels_of_the_training_split(
  start, tmp_path, arguments
):
  test = tmp_path / 'photos' / 'test' / 'class 1'
  test.mkdir(parents=True)
  (tmp_path / 'photos' / 'train' / 'class 1' / '1.jpg').rename(test / '1.jpg')
  for split in ('train', 'test'):
    chosen = [f'--subset={split}', f'--output_db={tmp_path / "db" / split}']
    done = start(*arguments[:2], *chosen)
    assert done.returncode == 0, done.stderr
  database = databases.open_database(tmp_path / 'db' / 'test')
  assert tensor_protos.decode(database.read(0)).label == 1
  content = (tmp_path / 'db' / 'labels.txt').read_text()
  assert content == '0:class 0\n1:class 1\n'


def test_labels_beside_the_database_that_name_other_classes_are_refused(
  start, tmp_path, arguments
):
  (tmp_path / 'db').mkdir()
  path = tmp_path / 'db' / 'labels.txt'
  path.write_text('class 1\nclass 0\n')
  done = start(*arguments)
  assert done.returncode == 1
  assert '0:class 0, 1:class 1; received 0:class 1, 1:class 0' in done.stderr
  assert os.listdir(tmp_path / 'db') == ['labels.txt']
  # Further classes do no harm.
  path.write_text('class 0\nclass 1\nclass 2\n')
  done = start(*arguments)
  assert done.returncode == 0, done.stderr
  assert path.read_text() == 'class 0\nclass 1\nclass 2\n'


def test_labels_beside_databases_name_the_classes_of_all(
  start, tmp_path, arguments
):
  done = start(*arguments, '--classes=class 0')
  assert done.returncode == 0, done.stderr
  path = tmp_path / 'db' / 'labels.txt'
  assert path.read_text() == '0:class 0\n'
  done = start(*arguments[:2], f'--output_db={tmp_path / "db" / "val"}')
  assert done.returncode == 0, done.stderr
  assert path.read_text() == '0:class 0\n1:class 1\n'
  options = factory.ReadOptions(image_size=8, batch_size=1, training=False)
  for split, count in {'train': 3, 'val': 5}.items():
    _, found = factory.load('image_db', tmp_path / 'db', split, options)
    assert (found.count, found.num_classes) == (count, 2)


def test_a_file_that_is_no_image_is_named_or_left_out(
  start, tmp_path, arguments
):
  bad = tmp_path / 'photos' / 'train' / 'class 1' / 'Thumbs.db'
  bad.write_bytes(b'\xd0\xcf\x11\xe0')
  done = start(*arguments)
  assert (done.returncode, done.stdout) == (1, '')
  assert f'{bad}: expected JPEG, PNG, GIF, BMP or WebP' in done.stderr
  assert not (tmp_path / 'db').exists()
  done = start(*arguments, '--skip_corrupt')
  assert done.returncode == 0, done.stderr
  first, second, last = done.stdout.splitlines()
  assert first == 'Left out 1 unreadable images:'
  assert second.startswith(f'  {bad}: expected JPEG')
  assert last == f'Wrote {tmp_path}/db/train: 5 images, lmdb.'
  done = start(*arguments, '--skip_corrupt', '--verify')
  assert done.returncode == 0, done.stderr


def test_a_class_of_imagenet_is_its_synset():
  names = {1: 'n01440764: tench, Tinca tinca', 2: 'n01443537: goldfish'}
  assert write_db._label_of(names, 'n01443537') == 2
  assert write_db._label_of(names, '1') == 1
