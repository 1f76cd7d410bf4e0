"""The torture sees what it is there for."""

import numpy as np
import pytest

from tests.bin import programs
from tests.torture import faults
from tests.torture import references


@pytest.mark.parametrize(
  'done',
  [
    programs.Finished(
      1, '', 'Traceback (most recent call last):\nerror: Expected'
    ),
    programs.Finished(2, '', 'something went wrong'),
    programs.Finished(-11, '', 'error: Expected a file'),
    programs.Finished(75, '', 'error: Expected a file'),
  ],
)
def test_a_program_that_ends_badly_is_a_difference(done):
  with pytest.raises(references.Difference, match='a file was damaged'):
    references.check_refusal(done, 'a file was damaged')


def test_a_program_that_refuses_or_works_is_none():
  references.check_refusal(programs.Finished(0, 'done', ''), '')
  said = 'error: Expected a file, received none.'
  references.check_refusal(programs.Finished(2, '', said), '')


def test_damage_changes_a_file_or_takes_it_away(tmp_path):
  path = tmp_path / 'file'
  changed = set()
  for seed in range(40):
    path.write_bytes(b'x' * 100)
    faults.damage(path, np.random.default_rng(seed))
    changed.add(path.read_bytes() if path.exists() else None)
  assert None in changed and len(changed) > 25
  assert b'x' * 100 not in changed
