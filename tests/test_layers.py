"""Which packages may import others and define flags, read from the sources.

A package imports itself and packages before it in `LAYERS`, at import or on
first use. slim is a library that does not know terngrad; only `step` and later
packages use it, except for its helpers of messages, which all may use. Data
sets have separate layers. Starters, the programs with older names, start a
command of `terngrad.cli` and do nothing else; nothing imports them. Experiments
may import anything else.
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
  'terngrad.codec.methods.scalar',
  'terngrad.codec.methods.sparse',
  'terngrad.codec.methods.transforms',
  'terngrad.codec.methods.wrappers',
  'terngrad.exchange',
  'terngrad.machine',
  'terngrad.cluster',
  'terngrad.reduce',
  'terngrad.conformance',
  'terngrad.step',
  'terngrad.checkpoint',
  'terngrad.passes',
  'terngrad.recipes',
  'terngrad.tracking',
  'terngrad.config',
  'terngrad.training',
  'terngrad.compression',
  'terngrad.local',
  'terngrad.keras',
  'terngrad.parameter_server',
  'terngrad.children',
  'terngrad.measure',
  'terngrad.measure.processes',
  'terngrad.measure.planning',
  'terngrad.measure.keras',
  'terngrad.measure.gpu',
  'terngrad.report.statistics',
  'terngrad.report.pages',
  'terngrad.report.targets',
  'terngrad.report',
  'terngrad.sweep',
  'terngrad.launching',
  'terngrad.cli',
  'terngrad.cli.check',
  'terngrad.cli.convert',
  'terngrad.cli.measure',
  'terngrad.cli.report',
  'terngrad.cli.slim',
  'terngrad.cli.trainers',
  'terngrad.bin',
)
# Knows no data and no nets.
OF_ALL = ('slim.errors', 'slim.spelling')
FIRST_LAYER_WITH_SLIM = LAYERS.index('terngrad.step')
LAYERS_OF_DATA = (
  'slim.datasets.records',
  'slim.datasets.files',
  'slim.datasets.small_images',
  'slim.datasets.photographs',
  'slim.datasets.text',
  'slim.datasets',
)
LAYERS_OF_NETS = ('slim.nets.blocks', 'slim.nets')
MOST_MODULES = 20
# These have programs of older names, a few lines each.
LARGER = {'terngrad/bin'}
MOST_LINES_OF_A_STARTER = 13
IMPORTS_OF_A_STARTER = {'os', 'sys', 'terngrad.cli.main'}


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


def is_starter(name, source):
  """Whether `name` starts a command by an older name, and is not imported."""
  parts = name.split('.')
  if parts[-1] == '__init__':
    return False
  # slim has them at its top, beside what its packages share.
  at_top_of_slim = len(parts) == 2 and parts[0] == 'slim'
  return (
    within(name, 'terngrad.bin')
    or at_top_of_slim
    and ('main.starter(' in source)
  )


def imports(source):
  """Yields (dotted name, level of relative import) of all that is imported.

  `from a import b` yields a.b: whether b is a module or a name in one, a.b
  starts with the module that is imported. `lazy.module('a.b')` imports a.b.
  """
  for node in ast.walk(ast.parse(source)):
    if isinstance(node, ast.Call) and ast.unparse(node.func) == 'lazy.module':
      yield ast.literal_eval(node.args[0]), 0
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
  if within(name, 'slim'):
    return True
  layer = layer_of(name)
  return layer is not None and layer >= FIRST_LAYER_WITH_SLIM


def violations(name, source, starters):
  """Returns what is wrong with one module's imports, as sentences."""
  found = []
  if within(name, 'experiments'):
    return found
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
    is_library = within(name, 'slim') and name not in starters
    if is_library and within(target, 'terngrad'):
      found.append(f'{name} imports {target}, but slim knows no terngrad')
    of_slim = within(target, 'slim') and not any(
      within(target, one) for one in OF_ALL
    )
    if of_slim and not may_import_slim(name):
      found.append(f'{name} imports {target}, which is for training and above')
    if any(within(target, s) for s in (*starters, 'experiments', 'tests')):
      found.append(f'{name} imports {target}, which is for nobody to import')
    if within(target, 'absl.flags') and not within(name, 'terngrad.cli'):
      found.append(f'{name} imports absl.flags, which is for terngrad.cli')
  return found


STARTERS = [
  name for name, source in MODULES.items() if is_starter(name, source)
]


def test_modules_keep_to_their_layers():
  assert MODULES
  found = []
  for name, source in MODULES.items():
    found += violations(name, source, STARTERS)
  assert found == []


@pytest.mark.parametrize('name', STARTERS)
def test_starter_only_starts_a_command(name):
  lines = [line for line in MODULES[name].splitlines() if line]
  assert len(lines) <= MOST_LINES_OF_A_STARTER
  assert {target for target, _ in imports(MODULES[name])} <= (
    IMPORTS_OF_A_STARTER
  )


@pytest.mark.parametrize('name', STARTERS)
def test_starter_has_the_name_that_its_command_shows(name):
  """--help and errors show the name that the user typed."""
  assert f"name='{name.rpartition('.')[2]}'" in MODULES[name]


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
def test_no_folder_has_too_many_modules(top):
  too_many = {f for f, count in packages(top).items() if count > MOST_MODULES}
  assert too_many <= LARGER


MADE_UP_STARTERS = ['terngrad.bin.mnist_train', 'slim.mnist']


@pytest.mark.parametrize(
  ('name', 'source'),
  [
    ('terngrad.codec.a', 'import terngrad.exchange.b'),
    ('terngrad.codec.a', 'from terngrad import training'),
    ('terngrad.exchange.a', 'def f():\n  from terngrad.training import b'),
    ('terngrad.training.a', 'from terngrad.cli import b'),
    ('terngrad.cli.a', 'from terngrad.cli.convert import b'),
    ('terngrad.codec.a', "b = lazy.module('terngrad.training.b')"),
    ('terngrad.codec.a', "def f():\n  return lazy.module('slim.nets.lenet')"),
    ('slim.nets.a', "b = lazy.module('terngrad.codec.b')"),
    ('slim.a', 'from terngrad.cli import main'),
    ('terngrad.training.a', 'from experiments import b'),
    ('terngrad.training.a', 'from . import b'),
    ('terngrad.training.a', 'import terngrad'),
    ('terngrad.cli.a', 'from terngrad.bin import mnist_train'),
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
  assert violations(name, source, MADE_UP_STARTERS)


@pytest.mark.parametrize(
  ('name', 'source'),
  [
    ('terngrad.codec.a', 'from terngrad.codec import b'),
    ('terngrad.exchange.a', 'from terngrad.codec import b'),
    ('terngrad.training.a', 'from slim.nets import lenet'),
    ('terngrad.bin.mnist_train', 'from terngrad.cli import b'),
    ('terngrad.cli.flags', 'from absl import flags'),
    ('terngrad.cli.convert.a', 'from terngrad.cli import b'),
    ('terngrad.cli.a', "b = lazy.module('slim.nets.factory')"),
    ('slim.mnist', 'from terngrad.cli import main'),
    ('terngrad.__init__', 'from terngrad.codec import a'),
    ('slim.datasets.a', 'from slim.datasets import b'),
    ('slim.datasets.a', 'from slim.datasets.records import b'),
    ('terngrad.codec.methods.a', 'from terngrad.codec import b'),
    ('terngrad.step.a', 'from slim.nets import lenet'),
    ('terngrad.codec.a', 'from slim import errors'),
    ('experiments.sweep', 'from slim.nets import lenet'),
    ('experiments.sweep', 'from terngrad.bin import mnist_train'),
  ],
)
def test_proper_import_passes(name, source):
  assert violations(name, source, MADE_UP_STARTERS) == []
