"""The program in docs/multi_device.md uses only public names, and learns."""

import pathlib
import re

import pytest

import terngrad
from terngrad.config import cluster
from terngrad.config import options

TEXT = pathlib.Path(__file__).parents[1] / 'docs' / 'multi_device.md'


@pytest.fixture(scope='module')
def blocks():
  return re.findall('```python\n(.*?)```', TEXT.read_text(), re.DOTALL)


def test_the_program_learns_and_sends_little(blocks, capsys):
  program = blocks[0]
  used = set(re.findall(r'terngrad\.(\w+)', program))
  assert used and used <= set(terngrad.__all__)
  exec(compile(program, str(TEXT), 'exec'), {})
  *_, last = capsys.readouterr().out.splitlines()
  accuracy, count = re.findall(r'([\d.]+)% of (\d+) others', last)[0]
  assert float(accuracy) > 90 and count == '200'
  (bits,) = re.findall(r'([\d.]+) bits an element', last)
  assert 1.6 < float(bits) < 2


def test_the_cluster_of_the_document_has_valid_options(blocks):
  names = {}
  exec(blocks[1], names)
  options.build(
    cluster.ClusterOptions, exchange='collective', **names['meeting']
  )
