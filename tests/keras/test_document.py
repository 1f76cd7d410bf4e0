"""docs/keras.md names what there is, and its first programs run."""

import pathlib
import re

import keras

import terngrad.keras

TEXT = (pathlib.Path(__file__).parents[2] / 'docs/keras.md').read_text()
PROGRAMS = re.findall('```python\n(.*?)```', TEXT, re.DOTALL)


def test_every_name_is_public():
  assert set(re.findall(r'terngrad\.keras\.(\w+)', TEXT)) == set(
    terngrad.keras.__all__
  )
  used = set(re.findall(r'terngrad\.(\w+)\(', TEXT))
  assert used == {'compress', 'Compressor'} <= set(terngrad.__all__)


def test_the_one_line_example_compiles():
  names = {}
  exec(compile(PROGRAMS[0], 'docs/keras.md', 'exec'), names)
  assert names['model'].optimizer is names['optimizer']
  exec(compile(PROGRAMS[1], 'docs/keras.md', 'exec'), names)


def test_every_code_block_is_valid_python():
  assert len(PROGRAMS) >= 6
  for program in PROGRAMS:
    compile(program, 'docs/keras.md', 'exec')


def test_the_front_page_compiles():
  text = (pathlib.Path(__file__).parents[2] / 'docs/index.md').read_text()
  (program,) = re.findall('```python\n(.*?)```', text, re.DOTALL)
  names = {}
  exec(compile(program, 'docs/index.md', 'exec'), names)
  assert names['model'].optimizer is names['optimizer']


def test_the_readme_shows_the_line():
  readme = (pathlib.Path(__file__).parents[2] / 'README.md').read_text()
  first = '\n'.join(readme.splitlines()[:20])
  assert 'terngrad.keras.CompressedOptimizer(' in first


def test_what_is_registered_can_be_loaded_by_name():
  for name in ('CompressedOptimizer', 'VirtualOptimizer'):
    assert keras.saving.get_registered_object(f'terngrad>{name}')
