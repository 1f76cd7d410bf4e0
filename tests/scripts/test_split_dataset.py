"""scripts/split_dataset.sh"""

import os
import shutil
import subprocess

import pytest

SCRIPT = 'split_dataset.sh'


@pytest.fixture
def data(tmp_path):
  """Ten shards beside labels, counts, a test split and a hidden file."""
  folder = tmp_path / 'my data $(touch executed)'
  folder.mkdir()
  for number in range(10):
    (folder / f'train-{number:05d} of 10').write_text(str(number))
  for name in ('labels.txt', 'shards.json', 'test-0', '.record_counts.json'):
    (folder / name).write_text(name)
  (folder / 'train-folder').mkdir()
  return folder


def worker(data, index, workers):
  return data / f'worker_{index}_of_{workers}'


def numbers(folder):
  return [int(path.read_text()) for path in sorted(folder.glob('train-*'))]


def split(project, *arguments):
  return project.run(SCRIPT, *map(str, arguments))


@pytest.mark.parametrize('workers', [1, 2, 5, 10])
def test_parts_are_blocks_that_cover_the_set(project, data, workers):
  for index in range(workers):
    status, out, err = split(project, data, workers, index)
    assert (status, err) == (0, '')
    assert out == f'made {worker(data, index, workers)}\n'
  parts = [numbers(worker(data, i, workers)) for i in range(workers)]
  assert sum(parts, []) == list(range(10))
  assert {len(part) for part in parts} == {10 // workers}


def test_labels_and_counts_are_linked_and_nothing_else(project, data):
  split(project, data, 5, 1)
  assert sorted(os.listdir(worker(data, 1, 5))) == [
    'labels.txt',
    'shards.json',
    'train-00002 of 10',
    'train-00003 of 10',
  ]
  assert (worker(data, 1, 5) / 'labels.txt').read_text() == 'labels.txt'


def test_links_of_a_relative_folder_resolve_from_anywhere(
  project, data, tmp_path
):
  assert split(project, data.name, 2, 0)[0] == 0  # it runs in tmp_path
  names = sorted(os.listdir(worker(data, 0, 2)))
  moved = tmp_path / 'elsewhere' / 'moved'
  moved.parent.mkdir()
  for folder, cwd in ((data, '/'), (data, tmp_path), (moved, data.parent)):
    if folder == moved:
      shutil.move(data, moved)
    found = subprocess.run(
      ['find', '-L', worker(folder, 0, 2), '-type', 'f', '-printf', '%f\n'],
      cwd=cwd,
      capture_output=True,
      text=True,
      check=True,
      timeout=60,
    )
    assert sorted(found.stdout.splitlines()) == names


def test_all_makes_every_worker_s_folder(project, data):
  status, out, _ = split(project, '--all', data, 5)
  assert status == 0
  assert out.count('made ') == 5
  assert sum((numbers(worker(data, i, 5)) for i in range(5)), []) == list(
    range(10)
  )


def test_uneven_split_needs_the_flag(project, data):
  status, out, err = split(project, data, 3, 0)
  assert (status, out) == (2, '')
  assert 'expected: a multiple of 3' in err
  assert 'received: 10' in err
  assert '--uneven' in err
  assert not worker(data, 0, 3).exists()


def test_first_workers_get_one_more_of_an_uneven_split(project, data):
  assert split(project, '--all', data, 4, '--uneven')[0] == 0
  parts = [numbers(worker(data, i, 4)) for i in range(4)]
  assert parts == [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9]]


def test_a_second_call_leaves_correct_folders_unchanged(project, data):
  split(project, data, 2, 1)
  before = os.stat(worker(data, 1, 2))
  (worker(data, 1, 2) / '.record_counts.json').write_text('{}')
  status, out, _ = split(project, '--all', data, 2)
  assert status == 0
  assert out == (f'made {worker(data, 0, 2)}\nunchanged {worker(data, 1, 2)}\n')
  assert os.stat(worker(data, 1, 2)).st_ino == before.st_ino


def add(folder):
  (folder / 'train-00009 of 10').symlink_to('../train-00009 of 10')


def remove(folder):
  (folder / 'train-00001 of 10').unlink()


def redirect(folder):
  remove(folder)
  (folder / 'train-00001 of 10').symlink_to('../train-00002 of 10')


def copy(folder):
  content = (folder / 'train-00001 of 10').read_text()
  remove(folder)
  (folder / 'train-00001 of 10').write_text(content)


def unlabel(folder):
  (folder / 'labels.txt').unlink()


def replace_by_file(folder):
  shutil.rmtree(folder)
  folder.write_text('')


def replace_by_link(folder):
  shutil.rmtree(folder)
  folder.symlink_to('nowhere')


@pytest.mark.parametrize(
  ('damage', 'message'),
  [
    (add, 'received: also'),
    (remove, 'received: nothing'),
    (redirect, 'received: a link to ../train-00002 of 10'),
    (copy, 'received: not a link'),
    (unlabel, 'labels.txt -> ../labels.txt'),
    (replace_by_file, 'expected: a folder'),
    (replace_by_link, 'expected: a folder'),
  ],
)
def test_incorrect_folder_is_refused(project, data, damage, message):
  split(project, data, 2, 0)
  damage(worker(data, 0, 2))
  status, out, err = split(project, '--all', data, 2)
  assert (status, out) == (2, '')
  assert message in err
  assert f'remedy:   remove {worker(data, 0, 2)}' in err
  assert not worker(data, 1, 2).exists()


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    ([], 'received: 0'),
    (['{data}'], 'received: 1'),
    (['{data}', '2'], 'received: 2'),
    (['{data}', '2', '0', '0'], 'received: 4'),
    (['--all', '{data}', '2', '0'], 'received: 3'),
    (['--each', '{data}', '2'], 'unknown argument: --each'),
    (['{data}/nowhere', '2', '0'], 'expected: a folder'),
    (['{data}', '0', '0'], '<workers>: a whole number, 1 or more'),
    (['{data}', '-1', '0'], 'unknown argument: -1'),
    (['{data}', '2x', '0'], 'received: 2x'),
    (['{data}', 'a[$(touch executed)]', '0'], 'received: a[$(touch'),
    (['{data}', '99999999999999999999', '0'], 'received: 9999'),
    (['{data}', '2', '2'], '<index>: a whole number from 0 to 1'),
    (['{data}', '2', '01'], 'received: 01'),
    (['{data}', '2', ''], 'received: \n'),
    (['{data}', '11', '0'], 'too few files'),
    (['{data}/train-folder', '1', '0'], 'nothing to split'),
  ],
)
def test_bad_arguments_exit_with_2_and_make_nothing(
  project, data, arguments, message
):
  before = sorted(os.listdir(data))
  filled = [argument.format(data=data) for argument in arguments]
  status, out, err = split(project, *filled)
  assert (status, out) == (2, '')
  assert message in err
  assert sorted(os.listdir(data)) == before


def test_values_are_not_taken_for_code(project, data, tmp_path):
  (data / 'train-$(touch executed) \'"\n').write_text('10')
  assert split(project, '--all', data, 11)[0] == 0
  assert not list(tmp_path.rglob('executed'))


def test_help_is_printed(project):
  status, out, err = split(project, '--help')
  assert (status, err) == (0, '')
  assert out.startswith('usage: scripts/split_dataset.sh')


def test_a_failed_split_leaves_nothing(project, data):
  # Without mv the staging folder cannot be renamed.
  fake = project.program(data.parent / 'bin' / 'mv', 'exit 1')
  path = f'{fake.parent}:{os.environ["PATH"]}'
  status, _, err = project.run(SCRIPT, str(data), '2', '0', PATH=path)
  assert status == 2
  assert 'cannot make the folder' in err
  assert not [name for name in os.listdir(data) if name.startswith('.split')]
