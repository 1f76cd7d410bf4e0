"""Keys of variables in TensorFlow's checkpoints.

For a dict of variables 'tower_0', the variable 'conv1/kernel' has the key
'tower_0/conv1.Skernel/.ATTRIBUTES/VARIABLE_VALUE'.
"""

import re

VALUE = '/.ATTRIBUTES/VARIABLE_VALUE'


def key_of(folder: str, name: str) -> str:
  """Returns the key of the variable `name` in the dict `folder`."""
  escaped = name.replace('.', '..').replace('/', '.S')
  return f'{folder}/{escaped}{VALUE}'


def name_of(folder: str, key: str) -> str:
  """Returns the variable's name for a key of the dict `folder`, or ''."""
  start = f'{folder}/'
  if not (key.startswith(start) and key.endswith(VALUE)):
    return ''
  inner = key.removeprefix(start).removesuffix(VALUE)
  return re.sub(r'\.(.)', lambda m: '/' if m[1] == 'S' else m[1], inner)
