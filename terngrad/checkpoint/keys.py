"""The keys of variables in TensorFlow's checkpoints.

A checkpoint of dicts of variables has the key
'tower_0/conv1.Skernel/.ATTRIBUTES/VARIABLE_VALUE' for 'conv1/kernel' of the
dict 'tower_0'.
"""

import re

VALUE = '/.ATTRIBUTES/VARIABLE_VALUE'


def key_of(folder: str, name: str) -> str:
  """The key of a variable in a dict of variables."""
  escaped = name.replace('.', '..').replace('/', '.S')
  return f'{folder}/{escaped}{VALUE}'


def name_of(folder: str, key: str) -> str:
  """The name of a variable in a dict of variables; '' for other keys."""
  start = f'{folder}/'
  if not (key.startswith(start) and key.endswith(VALUE)):
    return ''
  inner = key.removeprefix(start).removesuffix(VALUE)
  return re.sub(r'\.(.)', lambda m: '/' if m[1] == 'S' else m[1], inner)
