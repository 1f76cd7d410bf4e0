"""Virtual nodes, and the flags that all runs of a sweep have."""

import pytest

from terngrad.report.statistics import sweep_flags


@pytest.mark.parametrize(
  ('flags', 'is_virtual'),
  [
    ('--num_nodes=4', True),
    ('--num_gpus=2 --num_nodes=4 --seed=1', True),
    ('--num_nodes=4 --devices=cpu:0,cpu:1', True),
    # Words may repeat; the last one counts.
    ('--num_nodes=1 --num_nodes=4', True),
    ('--num_gpus=4 --num_nodes=4', False),
    ('--num_nodes=2 --devices=cpu:0,cpu:1', False),
    ('--num_nodes=4 --num_nodes=1', False),
    ('--seed=1', False),
    ('launch --num_ps=1 --num_workers=4 -- --num_nodes=4', False),
    ('', False),
    ('--num_nodes=many', False),
    ('--name="', False),
    ('nan', False),
  ],
)
def test_more_nodes_than_devices_are_virtual(flags, is_virtual):
  assert sweep_flags.is_virtual(flags) == is_virtual


def test_common_flags_are_divided_from_the_others():
  flags = ["--a=1 --b='x y' --seed=1", "--a=1 --c=2 --b='x y' --seed=2"]
  assert sweep_flags.divide(flags) == (
    "--a=1 '--b=x y'",
    ['--seed=1', '--c=2 --seed=2'],
  )
  assert sweep_flags.divide([]) == ('', [])
  assert sweep_flags.divide(['--a="']) == ("'--a=\"'", [''])


def test_a_recipe_sets_the_flags_that_the_line_does_not_have():
  # The values of `terngrad.recipes.diloco`.
  assert sweep_flags.local_steps('--recipe=diloco --seed=1') == (500, 1)
  assert sweep_flags.local_steps('--local_steps=20 --recipe=diloco') == (20, 1)
  rate = '--initial_learning_rate=0.0004'
  assert sweep_flags.rates('--recipe=diloco') == rate
  assert sweep_flags.rates(f'{rate}5 --recipe=diloco') == f'{rate}5'
  assert sweep_flags.local_steps('--recipe=unknown') == (1, 1)


@pytest.mark.parametrize(
  'flags',
  ['--local_steps 20 --fragments 4', '-local_steps=20 -fragments 4 --x']
  + ['launch --verbose -- --local_steps 20 --fragments=4'],
)
def test_every_spelling_of_a_flag_is_read(flags):
  assert sweep_flags.local_steps(flags) == (20, 4)


def test_a_value_stays_with_its_flag_where_flags_are_divided():
  flags = ['--a x -b -1 -- --c 2', '--a x -b -1 -- --c 3']
  common = '--a=x --b=-1 --'
  assert sweep_flags.divide(flags) == (common, ['--c=2', '--c=3'])
