import re

from tests.bin import programs


def test_the_ratio_of_a_net_is_printed():
  done = programs.run(
    'measure_eval',
    '--nets=lenet',
    '--rounds=1',
    '--batches=2',
    '--batch_size=2',
  )
  assert done.code == 0, done.err
  assert 'evaluator to bare' in done.out
  assert re.search(r'^lenet +\d+\.\d+ +\d+\.\d+ +\d+\.\d+$', done.out, re.M)


def test_a_net_that_is_not_known_is_refused():
  done = programs.run('measure_eval', '--nets=lenet,no_such_net')
  assert done.code == 2
  assert 'no_such_net' in done.error
