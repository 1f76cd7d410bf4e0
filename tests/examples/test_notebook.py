"""The notebook goes from `fit` to a plot of five codecs."""

import json
import pathlib
import re

import matplotlib.pyplot as plt
import pytest

NOTEBOOK = (
  pathlib.Path(__file__).resolve().parents[2] / 'examples/compare_codecs.ipynb'
)


def cells():
  notebook = json.loads(NOTEBOOK.read_text(encoding='utf-8'))
  assert (notebook['nbformat'], notebook['nbformat_minor']) == (4, 5)
  return [
    ''.join(cell['source'])
    for cell in notebook['cells']
    if cell['cell_type'] == 'code'
  ]


def test_the_notebook_is_stored_without_output():
  stored = json.loads(NOTEBOOK.read_text(encoding='utf-8'))['cells']
  assert all(not cell.get('outputs') for cell in stored)
  assert len({cell['id'] for cell in stored}) == len(stored)


@pytest.mark.slow
def test_cells_run_from_top_to_bottom(capsys, monkeypatch):
  plt.switch_backend('agg')
  monkeypatch.setattr(plt, 'show', lambda: None)
  names = {}
  for number, text in enumerate(cells()):
    exec(compile(text, f'cell {number}', 'exec'), names)
  found = dict(
    re.findall(r'^(\S+) +([\d.]+) bits', capsys.readouterr().out, re.MULTILINE)
  )
  assert len(found) == 5
  assert float(found['ternary']) < 1.7 < 16 <= float(found['fp16'])
  left, right = names['figure'].axes
  assert len(left.lines) == len(right.lines) == 5
  for history in names['histories'].values():
    assert history['val_accuracy'][-1] > 0.8
  plt.close(names['figure'])
