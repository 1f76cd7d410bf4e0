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
