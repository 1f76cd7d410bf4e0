import re

import pytest

from tests.bin import programs


def test_the_ratio_of_a_net_is_printed(worker):
  done = worker.run(
    'measure_eval',
    programs.as_flags(nets='lenet', rounds=1, batches=2, batch_size=2),
  )
  assert done.code == 0, done.err
  assert 'evaluator to bare' in done.out
  assert re.search(r'^lenet +\d+\.\d+ +\d+\.\d+ +\d+\.\d+$', done.out, re.M)


@pytest.mark.parametrize(
  ('argument', 'message'),
  [
    ('--nets=lenet,no_such_net', 'no_such_net'),
    ('--nets=', '--nets: expected a value'),
    ('--batches=0', 'batches: expected a number >= 1, received 0'),
  ],
)
def test_bad_arguments_are_refused(argument, message, worker):
  done = worker.run('measure_eval', [argument])
  assert done.code == 2
  assert message in done.error
