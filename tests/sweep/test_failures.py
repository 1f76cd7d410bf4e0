"""The row of a failed run quotes the error from its log."""

import pytest

from terngrad.sweep import definition
from terngrad.sweep import failures

CELL = definition.Cell('ternary', 3, ())


@pytest.mark.parametrize(
  ('log', 'error'),
  [
    ('Step 1\nerror: Step 3: infinite.\nStep 2\n', 'Step 3: infinite.'),
    (
      '[worker 5] step 4\n[worker 0] error: Step 3: infinite.\n'
      '[worker 5] error: the chief ended.\n',
      'Step 3: infinite.',
    ),
    ('an error: in the middle\nKilled\n\n', 'Killed'),
    ('', ''),
    ('error: ' + 'x' * 1000, 'x' * 300),
  ],
  ids=['program', 'tasks', 'none', 'silent', 'long'],
)
def test_the_cause_is_the_first_error_or_else_the_last_line(log, error):
  found = failures.row(CELL, 1, log, '--codec=ternary --seed=3')
  assert found == {
    'variant': 'ternary',
    'seed': 3,
    'code': 1,
    'error': error,
    'flags': '--codec=ternary --seed=3',
  }
