"""Identifies kinds of machines: digests of floats differ between them."""

import pathlib

import tensorflow as tf

from terngrad.machine import onednn

# What chooses the compiled products, and by it the order of their sums.
_FLAGS = ('avx2', 'avx512f', 'fma')


def kind(text=None):
  """The processor, TensorFlow and its oneDNN: the key of what was recorded.

  Args:
    text: of /proc/cpuinfo; None reads it.

  Returns:
    str, such as 'AuthenticAMD 25/1 avx2 fma, tensorflow 2.21.0, oneDNN off'.
  """
  if text is None:
    path = pathlib.Path('/proc/cpuinfo')
    text = path.read_text(encoding='utf-8') if path.exists() else ''
  fields = {}
  for line in text.split('\n\n')[0].splitlines():
    name, _, value = line.partition(':')
    fields[name.strip()] = value.strip()
  vendor = fields.get('vendor_id', 'unknown')
  family, model = fields.get('cpu family', '?'), fields.get('model', '?')
  present = fields.get('flags', '').split()
  flags = [flag for flag in _FLAGS if flag in present]
  processor = ' '.join([vendor, f'{family}/{model}', *flags])
  switch = 'on' if onednn.is_on() else 'off'
  return f'{processor}, tensorflow {tf.__version__}, oneDNN {switch}'
