"""The program, started as its users start it."""

import os
import pathlib
import subprocess
import sys

import pytest

from tests.slim import archives_made
from tests.slim import mnist_files
from tests.slim import programs

ROOT = pathlib.Path(__file__).resolve().parents[3]


def start(arguments, folder):
  return programs.start('download_and_convert_data', *arguments, folder=folder)


def start_alone(arguments, folder):
  """Starts a script from a folder, without what PYTHONPATH names."""
  environment = {
    key: value for key, value in os.environ.items() if key != 'PYTHONPATH'
  }
  return subprocess.run(
    [sys.executable, *map(str, arguments)],
    cwd=folder,
    env=environment,
    stdin=subprocess.DEVNULL,
    capture_output=True,
    text=True,
    timeout=120,
    check=False,
  )


def last_line(result):
  """Returns the program's only line; TensorFlow's may stand before it."""
  *others, last = result.stderr.splitlines()
  assert last.startswith('error: ')
  assert not [line for line in others if 'Traceback' in line or 'slim' in line]
  return last


def conversion(tmp_path):
  mnist_files.write_idx(tmp_path / 'idx')
  return [
    '--dataset_name=mnist',
    f'--dataset_dir={tmp_path / "mnist"}',
    f'--source_dir={tmp_path / "idx"}',
    '--noverify_checksums',
  ]


def test_a_second_conversion_keeps_the_files_and_logs_it(tmp_path):
  arguments = conversion(tmp_path)
  first = start(arguments, tmp_path)
  assert first.returncode == 0, first.stderr
  assert first.stdout == (
    f'Wrote {tmp_path}/mnist: 23 train, 11 test; source: idx files in '
    f'{tmp_path}/idx.\n'
  )
  second = start(arguments, tmp_path)
  assert second.returncode == 0, second.stderr
  assert second.stdout.startswith(
    f'Kept the complete files in {tmp_path}/mnist: 23 train, 11 test.'
  )


@pytest.mark.slow
@pytest.mark.parametrize(
  ('folder', 'program'),
  [
    (ROOT, 'slim/download_and_convert_data.py'),
    (ROOT / 'slim', 'download_and_convert_data.py'),
  ],
)
def test_starts_by_its_path_without_being_installed(tmp_path, folder, program):
  # No PYTHONPATH: the program finds the packages beside itself.
  result = start_alone([program, *conversion(tmp_path)], folder)
  assert result.returncode == 0, result.stderr
  assert '23 train, 11 test' in result.stdout


@pytest.mark.slow
def test_the_command_line_of_2017_shards_cifar10(tmp_path):
  (tmp_path / 'cifar-10-binary.tar.gz').write_bytes(
    archives_made.cifar_binary(archives_made.cifar())
  )
  words = ['download_and_convert_data.py', '--dataset_name', 'cifar10']
  words += ['--dataset_dir', tmp_path / 'D', '--source_dir', tmp_path]
  words += ['--verify_checksums', 'False', '--train_shards', '5']
  result = start_alone([*words, '--shard', 'True'], ROOT / 'slim')
  assert result.returncode == 0, result.stderr
  assert result.stdout.startswith(f'Wrote {tmp_path}/D: 20 train, 4 test')
  names = {path.name for path in (tmp_path / 'D').glob('t*-of-*')}
  assert names == {
    *(f'train-0000{i}-of-00005' for i in range(5)),
    'test-00000-of-00001',
  }
  verify = [*words[:5], '--verify']
  result = start_alone(verify, ROOT / 'slim')
  assert result.stdout.startswith(f'Verified {tmp_path}/D: 20 train, 4 test')


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    (['--dataset_name=mnits', '--dataset_dir=x'], "did you mean 'mnist'"),
    (['--dataset_name=mnist'], '--dataset_dir: expected a value'),
    (
      ['--dataset_name=mnist', '--dataset_dir=x', 'y'],
      "flags only, received the word 'y'",
    ),
    (
      ['--dataset_name=mnist', '--dataset_dir=x', '--train_shards=4'],
      '--train_shards: expected --shard beside it, received none',
    ),
    (
      ['--dataset_name=mnist', '--dataset_dir=x', '--validation_images=4'],
      'expected --dataset_name=flowers beside it, received mnist',
    ),
    (
      ['--dataset_name=tfds:a', '--dataset_dir=x', '--noverify_checksums'],
      'a data set that is not of tensorflow-datasets beside it, received',
    ),
  ],
)
def test_bad_arguments_exit_with_2(tmp_path, arguments, message):
  result = start(arguments, tmp_path)
  assert (result.returncode, result.stdout) == (2, '')
  assert message in last_line(result)
  assert list(tmp_path.iterdir()) == []


def test_unusable_data_exits_with_1_and_one_line(tmp_path):
  arguments = conversion(tmp_path)[:-1]  # checksums are verified
  result = start(arguments, tmp_path)
  assert (result.returncode, result.stdout) == (1, '')
  assert 'expected sha256' in last_line(result)
  assert not (tmp_path / 'mnist').exists()
