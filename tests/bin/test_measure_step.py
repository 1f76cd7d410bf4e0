import pytest

from tests.bin import programs


@pytest.mark.slow
def test_both_ratios_and_the_cost_of_a_node_are_printed(tmp_path):
  done = programs.run(
    'measure_step',
    '--rounds=1',
    '--steps=1',
    '--nodes=2,4',
    f'--output={tmp_path}',
  )
  assert done.code == 0, done.err
  for words in (
    'to float32 towers',
    'to plain Keras',
    'ternary, 2 nodes',
    'Each node after the first 2 adds',
  ):
    assert words in done.out
  assert (tmp_path / 'measure_step.csv').exists()


def test_nodes_that_do_not_divide_the_batch_are_refused():
  done = programs.run('measure_step', '--nodes=3')
  assert done.code == 2
  assert 'multiple of the 3 nodes' in done.err
