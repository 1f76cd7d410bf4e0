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


@pytest.mark.parametrize(
  ('argument', 'message'),
  [
    ('--nodes=3', 'multiple of the 3 nodes'),
    (
      '--nodes=2,many',
      "--nodes: expected whole numbers above 0, received 'many'",
    ),
    ('--codec=terniary', "Did you mean 'ternary'"),
  ],
)
def test_bad_arguments_are_refused(argument, message, worker):
  done = worker.run('measure_step', [argument])
  assert done.code == 2
  assert message in done.error
