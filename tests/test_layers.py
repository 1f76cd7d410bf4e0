"""Who may import whom, and where flags may be, read from the sources.

A package imports itself and what stands before it in `LAYERS`. slim's packages
know nothing of terngrad, and only `step` and what stands after it use them;
what messages are made with is for all.
Data sets have layers of their own. Nothing imports a program.
"""

import ast
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
# terngrad.native holds kernels that only codec and step call.
LAYERS = (
  'terngrad.native',
  'terngrad.codec.stages',
  'terngrad.codec',
  'terngrad.codec.methods',
  'terngrad.exchange',
  'terngrad.cluster',
  'terngrad.step',
  'terngrad.checkpoint',
  'terngrad.config',
  'terngrad.training',
  'terngrad.parameter_server',
  'terngrad.measure',
  'terngrad.report',
  'terngrad.program',
  'terngrad.bin',
)
# Knows no data and no nets.
OF_ALL = 'slim.errors'
FIRST_LAYER_WITH_SLIM = LAYERS.index('terngrad.step')
LAYERS_OF_DATA = (
  'slim.datasets.records',
  'slim.datasets.files',
  'slim.datasets.small_images',
  'slim.datasets.photographs',
  'slim.datasets',
)
LAYERS_OF_NETS = ('slim.nets.blocks', 'slim.nets')
MOST_MODULES = 15
# The programs are few enough once they are a table.
LARGER = {'terngrad/bin'}


def all_modules():
  """Returns {dotted name: source} of everything that is not a test."""
  return {
    '.'.join(path.relative_to(ROOT).with_suffix('').parts): path.read_text(
      encoding='utf-8'
    )
    for folder in ('terngrad', 'slim', 'experiments')
    for path in sorted((ROOT / folder).rglob('*.py'))
  }


MODULES = all_modules()


def is_program(name, source):
  """Whether `name` is meant to be started, not imported."""
  parts = name.split('.')
  if parts[-1] == '__init__':
    return False
  if parts[:2] == ['terngrad', 'bin'] or parts[0] == 'experiments':
    return True
  # slim keeps its programs at its top, beside what its packages share.
  return len(parts) == 2 and parts[0] == 'slim' and '__main__' in source


def imports(source):
  """Yields (dotted name, level of relative import) of all that is imported.

  `from a import b` yields a.b: whether b is a module or a name in one, a.b
  starts with the module that is imported.
  """
  for node in ast.walk(ast.parse(source)):
    if isinstance(node, ast.Import):
      for alias in node.names:
        yield alias.name, 0
    elif isinstance(node, ast.ImportFrom):
      for alias in node.names:
        yield f'{node.module or ""}.{alias.name}', node.level


def within(name, module):
  return name == module or name.startswith(f'{module}.')


def layer_of(name, layers=LAYERS):
  """Returns the index in `layers`, or None for what is in no layer."""
  own = [layer for layer in layers if within(name, layer)]
  return layers.index(max(own, key=len)) if own else None


def may_import_slim(name):
  if name.split('.')[0] in ('slim', 'experiments'):
    return True
  layer = layer_of(name)
  return layer is not None and layer >= FIRST_LAYER_WITH_SLIM


def may_use_flags(name):
  parts = name.split('.')
  if parts[0] == 'terngrad':
    return len(parts) > 2 and parts[1] in ('program', 'bin')
  return parts[0] == 'experiments' or len(parts) == 2


def violations(name, source, programs):
  """Returns what is wrong with one module's imports, as sentences."""
  found = []
  own_layer = layer_of(name)
  for target, level in imports(source):
    if level:
      found.append(f'{name} imports {target} relatively')
    for layers in (LAYERS, LAYERS_OF_DATA, LAYERS_OF_NETS):
      own, other = layer_of(name, layers), layer_of(target, layers)
      if own is not None and other is not None and other > own:
        found.append(f'{name} imports {target}, a layer above')
    if own_layer is not None and target == 'terngrad':
      found.append(f'{name} imports terngrad, which imports it')
    is_slim_package = name.startswith('slim.') and name.count('.') > 1
    if is_slim_package and within(target, 'terngrad'):
      found.append(f'{name} imports {target}, but slim knows no terngrad')
    of_slim = within(target, 'slim') and not within(target, OF_ALL)
    if of_slim and not may_import_slim(name):
      found.append(f'{name} imports {target}, which is for training and above')
    if any(within(target, p) and p != name for p in programs):
      found.append(f'{name} imports {target}, a program')
    if within(target, 'absl.flags') and not may_use_flags(name):
      found.append(f'{name} imports absl.flags, which is for programs')
  return found


PROGRAMS = [
  name for name, source in MODULES.items() if is_program(name, source)
]


@pytest.mark.parametrize('name', MODULES)
def test_module_keeps_to_its_layer(name):
  assert violations(name, MODULES[name], PROGRAMS) == []


def packages(top):
  """{folder: number of its modules}, of a package and those in it."""
  return {
    path.parent.relative_to(ROOT).as_posix(): len(
      [p for p in path.parent.glob('*.py') if p != path]
    )
    for path in (ROOT / top).rglob('__init__.py')
  }


def test_every_package_of_terngrad_has_a_layer():
  names = {folder.replace('/', '.') for folder in packages('terngrad')}
  assert names == {'terngrad', *LAYERS}


@pytest.mark.parametrize('top', ['terngrad', 'slim'])
def test_no_folder_has_more_modules_than_one_can_see(top):
  too_many = {f for f, count in packages(top).items() if count > MOST_MODULES}
  assert too_many <= LARGER


@pytest.mark.parametrize(
  ('name', 'source'),
  [
    ('terngrad.codec.a', 'import terngrad.exchange.b'),
    ('terngrad.codec.a', 'from terngrad import training'),
    ('terngrad.exchange.a', 'def f():\n  from terngrad.training import b'),
    ('terngrad.training.a', 'from terngrad.program import b'),
    ('terngrad.training.a', 'from . import b'),
    ('terngrad.training.a', 'import terngrad'),
    ('terngrad.program.a', 'from terngrad.bin import mnist_train'),
    ('terngrad.bin.other', 'from terngrad.bin import mnist_train'),
    ('terngrad.codec.a', 'from slim.nets import lenet'),
    ('terngrad.exchange.a', 'import slim'),
    ('slim.nets.a', 'from terngrad import codec'),
    ('slim.nets.a', 'import terngrad'),
    ('slim.nets.a', 'from absl import flags'),
    ('terngrad.training.a', 'from absl.flags import DEFINE_string'),
    ('terngrad.codec.a', 'import absl.flags as f'),
    ('terngrad.codec.a', 'from terngrad.codec.methods import b'),
    ('terngrad.codec.stages.a', 'from terngrad.codec import b'),
    ('terngrad.step.a', 'from terngrad.checkpoint import b'),
    ('slim.datasets.records.a', 'from slim.datasets import shards'),
    ('slim.nets.blocks.a', 'from slim.nets import factory'),
  ],
)
def test_breach_is_found(name, source):
  assert violations(name, source, ['terngrad.bin.mnist_train'])


@pytest.mark.parametrize(
  ('name', 'source'),
  [
    ('terngrad.codec.a', 'from terngrad.codec import b'),
    ('terngrad.exchange.a', 'from terngrad.codec import b'),
    ('terngrad.training.a', 'from slim.nets import lenet'),
    ('terngrad.bin.mnist_train', 'from terngrad.program import b'),
    ('terngrad.bin.mnist_train', 'from absl import flags'),
    ('terngrad.__init__', 'from terngrad.codec import a'),
    ('slim.datasets.a', 'from slim.datasets import b'),
    ('slim.datasets.a', 'from slim.datasets.records import b'),
    ('terngrad.codec.methods.a', 'from terngrad.codec import b'),
    ('terngrad.step.a', 'from slim.nets import lenet'),
    ('terngrad.codec.a', 'from slim import errors'),
    ('slim.download_and_convert_data', 'from absl import flags'),
    ('experiments.sweep', 'from slim.nets import lenet'),
  ],
)
def test_proper_import_passes(name, source):
  assert violations(name, source, ['terngrad.bin.mnist_train']) == []
