"""What is asked of TensorFlow's runtime."""

import pytest

from terngrad import errors
from terngrad.cluster import devices
from tests import forked


def kinds(*words):
  """The operations of a large sum, in a process of its own."""
  done = forked.run('tests.cluster.large_sum', *words)
  assert done.returncode == 0, done.stderr
  return done.stdout.split()


def test_large_sums_keep_their_order_on_request():
  assert 'AddN' in kinds('keep')


def test_large_sums_are_split_by_default():
  found = kinds()
  assert 'AddN' not in found
  assert found.count('AssignAdd') == 3


def threads_of(*words, folder):
  return forked.run(
    'tests.cluster.threads_of',
    *words,
    *('--max_steps=1', '--batch_size=2', '--benchmark_mode'),
    f'--train_dir={folder}',
  )


@pytest.mark.parametrize('count', [1, pytest.param(3, marks=pytest.mark.slow)])
def test_operations_use_the_chosen_number_of_threads(count, tmp_path):
  done = threads_of(f'--threads={count}', folder=tmp_path)
  assert done.returncode == 0, done.stderr
  assert done.stdout.splitlines()[-1] == f'{count} threads'


def test_threads_set_after_the_first_operation_are_refused(tmp_path):
  done = threads_of('late', '--threads=3', folder=tmp_path)
  assert done.returncode == 2
  assert 'threads: expected 3 before the first operation' in done.stderr


def test_names_may_come_from_an_iterator():
  assert devices.device_names(iter(['/CPU:0', 'cpu:1'])) == ('/CPU:0', '/CPU:1')


def test_numbers_may_be_text_as_on_a_command_line():
  assert devices.device_names(['0', '1']) == devices.device_names([0, 1])
  for wrong in ([-1], ['-1'], ['1.0'], [True], ['']):
    with pytest.raises(errors.ConfigError, match='expected a list of numbers'):
      devices.device_names(wrong)
