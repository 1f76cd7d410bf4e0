"""Checkpoints of an older version continue to the bits that were recorded."""

import pytest

from tests.bits import continued
from tests.bits import recorded


def check(name, train_dir):
  expected = recorded.of_this_machine('continued').get(name)
  if expected is None:
    pytest.skip(f'{name} is not recorded on this kind of machine')
  continued.put_back(name, train_dir)
  before = continued.digest(train_dir, continued.FIRST)
  continued.train_processes(name, train_dir, continued.LAST)
  # The checkpoint was continued, not written again.
  assert continued.digest(train_dir, continued.FIRST) == before
  assert continued.digest(train_dir, continued.LAST) == expected


def test_an_older_run_continues_to_the_same_bits(tmp_path):
  check('momentum', tmp_path / 'train')


@pytest.mark.slow
@pytest.mark.parametrize(
  'name', ['both_ways_of_one', 'adam', 'float16', 'per_device', 'save_tower']
)
def test_every_kind_of_older_run_continues_to_the_same_bits(name, tmp_path):
  check(name, tmp_path / 'train')


@pytest.mark.cluster
@pytest.mark.slow
def test_an_older_run_of_two_processes_continues_to_the_same_bits(tmp_path):
  check('both_ways_of_two', tmp_path / 'train')


def test_every_run_is_recorded_and_small():
  known = recorded.read('continued').values()
  assert {name for digests in known for name in digests} == set(continued.RUNS)
  for name in continued.RUNS:
    files = list((continued.FOLDER / name).iterdir())
    assert len(files) == 3
    assert sum(path.stat().st_size for path in files) < 100_000
