"""The public surface: all names that users and their files depend on.

`python -m tests.surface.public FILE` writes it as JSON.
"""

import ast
import importlib
import inspect
import json
import pathlib
import re
import sys
import types

import tensorflow as tf

from slim.datasets import catalog
from slim.nets import factory
from terngrad.cli import commands
from terngrad.codec.methods import registry
from terngrad.config import cluster
from terngrad.config import options
from terngrad.training import metrics

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_MODULES = ('terngrad', 'terngrad.keras')


def surface() -> dict[str, dict]:
  """All that is public, a dict of section to dict of name to what it is."""
  return {
    'python': _python(),
    'commands': _commands(),
    'programs': {name: '' for name in _programs()},
    'scripts': {p.name: _flags_of(p) for p in _ROOT.glob('scripts/*.sh')},
    'codecs': {name: _signature(made) for name, made in _codecs()},
    'nets': dict.fromkeys(factory.NETS, ''),
    'data sets': dict.fromkeys(catalog.DATASETS, ''),
    'clusters': dict.fromkeys(cluster.RESOLVERS, ''),
    'metrics': {
      m.name: m.tag for m in (*metrics.TRAINING, *metrics.evaluated())
    },
    'keras names': dict.fromkeys(_keras_names(), ''),
    'entry points': {registry.ENTRY_POINTS: ''},
    'checkpoint keys': dict.fromkeys(_checkpoint_keys(), ''),
  }


def _python():
  """{dotted name: signature} of functions, classes and their members."""
  found = {}
  for module in map(importlib.import_module, _MODULES):
    for name in module.__all__:
      value = getattr(module, name)
      path = f'{module.__name__}.{name}'
      found[path] = _signature(value)
      if isinstance(value, type):
        members = vars(value).items()
        found |= {
          f'{path}.{member}': _signature(each)
          for member, each in members
          if not member.startswith('_')
        }
  return found


def _signature(value):
  """A function's or class's parameters as text; else its kind."""
  if isinstance(value, classmethod | staticmethod):
    value = value.__func__
  if isinstance(value, types.FunctionType | type):
    try:
      signature = inspect.signature(value)
    except ValueError:
      return 'class'
    # Types may be added: names and defaults count.
    bare = [
      one.replace(annotation=one.empty) for one in signature.parameters.values()
    ]
    return re.sub(r' at 0x[0-9a-f]+', '', str(inspect.Signature(bare)))
  return type(value).__name__


def _codecs():
  return [
    *registry.CODECS.items(),
    *registry.METHODS.items(),
    *registry.WRAPPERS.items(),
    *((name, None) for name in registry.ALIASES),
  ]


def _commands():
  """{'train mnist': {flag: its default}} of all commands."""
  found = {}

  def walk(path, members):
    for name, each in members.items():
      if isinstance(each, commands.CommandGroup):
        walk((*path, name), each.members)
      else:
        command = commands.load(each)
        flags = {o.name: o.default for o in options.fields(command.options)}
        flags |= command.defaults
        found[' '.join((*path, name))] = {
          command.flag_names.get(flag, flag): str(value)
          for flag, value in flags.items()
        }

  walk((), commands.COMMANDS)
  return found


def _programs():
  """Names that are installed, and modules that `python -m` starts."""
  tree = ast.parse((_ROOT / 'setup.py').read_text(encoding='utf-8'))
  (value,) = (
    node.value
    for node in tree.body
    if isinstance(node, ast.Assign) and node.targets[0].id == 'PROGRAMS'
  )
  modules = [*_ROOT.glob('terngrad/bin/*.py'), *_ROOT.glob('slim/*.py')]
  return [
    *(ast.literal_eval(key) for key in value.keys),
    *(
      '.'.join(path.relative_to(_ROOT).with_suffix('').parts)
      for path in modules
      if path.stem != '__init__'
    ),
  ]


def _flags_of(script):
  """The flags that a script's text names, sorted, as text."""
  text = script.read_text(encoding='utf-8')
  return ' '.join(sorted(set(re.findall(r'(?<![\w-])--[a-z][a-z_]+', text))))


def _keras_names():
  # Importing the package registers them.
  importlib.import_module('terngrad.keras')
  import keras

  registered = keras.saving.get_custom_objects()
  return [name for name in registered if name.startswith('terngrad>')]


def _checkpoint_keys():
  """Keys of the checkpoints that are recorded in tests/bits."""
  return {
    name
    for path in (_ROOT / 'tests' / 'bits' / 'checkpoints').glob('*/*.index')
    for name, _ in tf.train.list_variables(str(path.with_suffix('')))
  }


def differences(before: dict, now: dict) -> dict[str, str]:
  """What was added, removed or changed, {'section: name': what}."""
  found = {}
  for section in {**before, **now}:
    old, new = before.get(section, {}), now.get(section, {})
    for name in {**old, **new}:
      if name not in new or name not in old:
        found[f'{section}: {name}'] = 'removed' if name in old else 'added'
      elif isinstance(old[name], dict):
        inner = differences({'': old[name]}, {'': new[name]})
        found |= {
          f'{section}: {name} {flag[2:]}': what for flag, what in inner.items()
        }
      elif old[name] != new[name]:
        found[f'{section}: {name}'] = f'{old[name]} -> {new[name]}'
  return found


def main(path: str) -> None:
  """Writes the surface to a file."""
  text = json.dumps(surface(), indent=1, sort_keys=True)
  pathlib.Path(path).write_text(text + '\n', encoding='utf-8')


if __name__ == '__main__':
  main(sys.argv[1])
