"""Definitions of sweeps: combinations, seeds, and what is refused."""

import pathlib
import re

import pytest

from terngrad import errors
from terngrad.cli import sweep as sweep_cli
from terngrad.sweep import definition
from terngrad.sweep import runs

ROOT = pathlib.Path(__file__).resolve().parents[2]

TEXT = """\
# What differs.
[sweep]
program = cifar10
seeds = 1 2
baseline = float32_2

[flags]
--max_steps = 20
--codec_rules = rank<2 -> identity; size>=9 & */bias -> fp16
--flagfile = base.flags
--quantize_logits

[eval]
--batch_size = 100

[eval values]
--restore_avg_var = false

[codec]
float32 = --codec=identity
ternary = --codec=ternary:clip_factor=2.5
  --clip_factor=2.5

[workers]
2 = --num_nodes=2
64 = --num_nodes=64

[seeds]
*_64 =
ternary_64 = 7

[baselines]
*_64 =
ternary_64 = float32_64
"""
ALWAYS = (
  '--max_steps=20',
  '--codec_rules=rank<2 -> identity; size>=9 & */bias -> fp16',
  '--batch_size=8',
  '--net=a b',
  '--quantize_logits',
)


@pytest.fixture
def read(tmp_path):
  (tmp_path / 'base.flags').write_text('--batch_size=8\n# Why.\n--net=a b\n')

  def read_text(text=TEXT, **options):
    (tmp_path / 'sweep.ini').write_text(text, encoding='utf-8')
    return definition.read(tmp_path, **options)

  return read_text


def test_variants_are_all_combinations_seed_by_seed(read):
  found = read()
  assert [cell.name for cell in found.cells] == [
    'float32_2_seed1',
    'ternary_2_seed1',
    'float32_2_seed2',
    'ternary_2_seed2',
    'ternary_64_seed7',
  ]
  assert found.program == 'cifar10'
  assert found.baselines == {
    'float32_2': 'float32_2',
    'ternary_2': 'float32_2',
    'ternary_64': 'float32_64',
  }
  assert found.scoring == {
    '': ('--batch_size=100',),
    'values': ('--batch_size=100', '--restore_avg_var=false'),
  }
  assert found.cells[-1].flags == (
    *ALWAYS,
    '--codec=ternary:clip_factor=2.5',
    '--clip_factor=2.5',
    '--num_nodes=64',
  )


@pytest.mark.parametrize('words', ['--flagfile=a/b', '--flagfile a/b'])
def test_flag_files_become_flags_and_are_beside_the_definition(
  read, tmp_path, words
):
  (tmp_path / 'a').mkdir()
  (tmp_path / 'a' / 'b').write_text('--num_nodes=2\n--x=flagfile=c\n')
  (cell,) = read(f'[a]\none = --y=1 {words} --z\n').cells
  assert cell.flags == ('--y=1', '--num_nodes=2', '--x=flagfile=c', '--z')


@pytest.mark.parametrize('text', ['none', '', 'loop'])
def test_a_flag_file_that_cannot_be_read_is_refused(read, tmp_path, text):
  (tmp_path / 'loop').write_text('--y=1\n--flagfile=loop\n')
  with pytest.raises(errors.ConfigError, match='one flag per line, received '):
    read(f'[a]\none = --flagfile={text}\n')


def test_arguments_replace_seeds_and_select_variants(read):
  found = read(
    seeds=(5,), only=('ternary*', 'no*'), extra_flags=('--max_steps=3',)
  )
  assert [cell.name for cell in found.cells] == [
    'ternary_2_seed5',
    'ternary_64_seed5',
  ]
  assert found.cells[0].flags[-1] == '--max_steps=3'
  # What has no seeds is not asked for.
  names = {cell.variant for cell in read(seeds=(5,)).cells}
  assert 'float32_64' not in names


def test_without_a_line_of_seeds_it_is_1_and_an_empty_line_has_none(read):
  text = '[sweep]\n{}[codec]\na =\nb =\n[seeds]\nb = 4\n'
  assert [cell.name for cell in read(text.format('')).cells] == [
    'a_seed1',
    'b_seed4',
  ]
  for line in ('seeds =\n', 'seeds\n'):
    assert [one.name for one in read(text.format(line)).cells] == ['b_seed4']


@pytest.mark.parametrize(
  ('line', 'wrong', 'section'),
  [
    ('seeds = 1 2', 'seeds = 1 two', '[seeds]\n* = 3'),
    ('baseline = float32_2', 'baseline = a', '[baselines]\n* = float32_2'),
  ],
)
def test_unused_invalid_values_are_refused(read, line, wrong, section):
  name = section.splitlines()[0]
  text = TEXT.replace(name, section)
  assert read(text).cells
  with pytest.raises(errors.ConfigError, match='received'):
    read(text.replace(line, wrong))


@pytest.mark.parametrize(
  ('change', 'message'),
  [
    (('# What differs.', 'stray = 1'), 'expected the definition of a sweep'),
    (('program =', 'steps = 3\nprogram ='), r'in \[sweep\], received steps'),
    (('program =', 'rates = best\nprogram ='), 'received rates = best. Write'),
    (
      ('baseline = float32_2', 'baseline = float'),
      "as baseline, received 'flo",
    ),
    (('--max_steps = 20', 'max_steps = 20'), "`--name = value`, received 'max"),
    (('seeds = 1 2', 'seeds = 1 two'), "seeds as integers, received '1 two'"),
    (('*_64 =', '*_16 ='), r"in \[seeds\] that .* received '\*_16', which"),
    (
      ('ternary_64 = float32_64', 'b = a'),
      r"in \[baselines\] that match a variant, received 'b'",
    ),
    (('= float32_64', '= a'), "as baseline, received 'a'. Choose one of float"),
    (('2 = --num', '../2 = --num'), 'that are valid folder names'),
    (('2 = --num', f'{231 * "a"} = --num'), 'names of at most 230 bytes'),
    (('[eval values]', '[eval ../x]'), r'digits and _, received \[eval'),
    (
      ('[eval values]', '[eval a]\n[eval  a]'),
      'different names of .*, received',
    ),
    (
      ('2 = --num_nodes=2', "2 = --x='1"),
      'for float32_2, quoted as in a shell, received "No closing',
    ),
    (
      ('float32 =', 'ternary =\nfloat32 ='),
      'expected the definition of a sweep',
    ),
    (('seeds = 1 2', 'seeds = 1 2\x00'), 'seeds as integers'),
    (
      ('--max_steps = 20', '--quiet\n  --max_steps = 20'),
      'ndented line',
    ),
  ],
)
def test_invalid_definitions_are_refused(read, change, message):
  with pytest.raises(errors.ConfigError, match=message):
    read(TEXT.replace(*change, 1))


def test_a_sweep_says_that_rates_were_searched(read):
  assert not read(TEXT).has_searched_rates
  text = TEXT.replace('seeds = 1 2\n', 'seeds = 1 2\nrates = searched\n')
  assert read(text).has_searched_rates


def test_equal_names_of_variants_are_refused(read):
  text = '[a]\nx =\nx_y =\n[b]\ny_z =\nz =\n'
  with pytest.raises(errors.ConfigError, match='received x_y_z twice'):
    read(text)


def test_a_sweep_without_runs_is_refused(read):
  with pytest.raises(
    errors.ConfigError, match='--only=gamma.* seeds to one of float32_2, '
  ):
    read(only=('gamma',))


def test_a_sweep_without_an_axis_is_refused(read):
  with pytest.raises(errors.ConfigError, match='received sweep, flags'):
    read('[sweep]\nseeds = 1\n[flags]\n--max_steps = 1\n')


def test_error_of_a_missing_file_is_one_line(tmp_path):
  with pytest.raises(errors.ConfigError, match='No such file') as raised:
    definition.read(tmp_path / 'none.ini')
  assert '\n' not in str(raised.value)


def test_the_definition_in_the_document_is_valid(read):
  text = (ROOT / 'docs' / 'sweeps.md').read_text(encoding='utf-8')
  (shown,) = re.findall(r'```ini\n(.*?)```', text, re.DOTALL)
  found = read(shown)
  assert len(found.cells) == 3 * 3 + 3
  assert set(sweep_cli.configurations(found)) == {
    f'{code}_{workers}'
    for code in ('float32', 'ternary', 'topk')
    for workers in (4, 16)
  }


LAUNCHED = """\
[sweep]
program = mnist
launch = --num_ps=1 --num_workers=4
[flags]
--max_steps = 20
[pace]
alone = --sync=false
"""


def test_a_run_of_several_processes_is_launched_with_its_flags(read):
  (cell,) = read(LAUNCHED).cells
  assert cell.launch == ('--num_ps=1', '--num_workers=4')
  assert runs.flags_of(cell) == (
    'launch --num_ps=1 --num_workers=4 -- --max_steps=20 --sync=false --seed=1'
  )
  assert runs.commands(read(LAUNCHED), cell, 'D', pathlib.Path('W'))[0] == [
    *('launch', '--num_ps=1', '--num_workers=4', '--', 'train', 'mnist'),
    *('--max_steps=20', '--sync=false', '--seed=1'),
    *('--data_dir=D', '--train_dir=W/train'),
  ]


def test_flags_of_launched_runs_are_parsed_as_by_the_chief(read):
  (config,) = sweep_cli.configurations(read(LAUNCHED)).values()
  assert config.cluster.sync is False
  equal = LAUNCHED.replace('--num_ps=1 ', '').replace('--sync=false', '')
  (config,) = sweep_cli.configurations(read(equal)).values()
  assert config.cluster.exchange == 'collective'


@pytest.mark.parametrize(
  ('change', 'message'),
  [
    (('--num_ps=1', '--num_pss=1'), 'alone: .*num_pss'),
    (('--num_ps=1 ', ''), 'alone: .*sync'),
    (
      ('--num_ps=1', "'--num_ps=1"),
      'for launch, quoted .*, received "No closing',
    ),
  ],
)
def test_invalid_launch_flags_are_refused(read, change, message):
  with pytest.raises(errors.ConfigError, match=message):
    sweep_cli.configurations(read(LAUNCHED.replace(*change)))
