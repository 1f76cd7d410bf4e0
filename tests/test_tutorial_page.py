"""The programs of docs/tutorial.md run, and its model learns."""

import pathlib
import re

import pytest

from tests.keras import small

TEXT = pathlib.Path(__file__).parents[1] / 'docs' / 'tutorial.md'


@pytest.mark.slow
@small.ARRAYS_OF_KERAS
def test_the_tutorial_ends_with_a_trained_model(tmp_path, monkeypatch, capsys):
  monkeypatch.chdir(tmp_path)
  programs = re.findall('```python\n(.*?)```', TEXT.read_text(), re.DOTALL)
  names = {}
  for program in programs:
    exec(compile(program, str(TEXT), 'exec'), names)
  *lines, last = capsys.readouterr().out.splitlines()
  found = [
    re.search(r'([\d.]+) bits/element, accuracy ([\d.]+)%', line).groups()
    for line in lines
  ]
  bits = [float(row[0]) for row in found]
  accuracies = [float(row[1]) for row in found]
  assert len(found) == 3
  assert min(accuracies) > 85
  assert bits[0] == 32
  assert max(bits[1:]) < 4
  assert last.startswith('guesses')
