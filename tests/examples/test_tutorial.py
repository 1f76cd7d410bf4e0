"""The notebook for several devices runs in a process of its own, and learns."""

import json
import pathlib
import re

import matplotlib.image
import pytest

import terngrad
from tests.examples import notebook
from tests.exchange import processes

TUTORIAL = processes.ROOT / 'docs' / 'tutorial_multi_device.ipynb'


def test_it_is_stored_without_output():
  stored = json.loads(TUTORIAL.read_text(encoding='utf-8'))
  assert (stored['nbformat'], stored['nbformat_minor']) == (4, 5)
  cells = stored['cells']
  assert all(not cell.get('outputs') for cell in cells)
  assert len({cell['id'] for cell in cells}) == len(cells)


def test_it_uses_public_names_alone():
  code = '\n'.join(notebook.code_of(TUTORIAL))
  used = set(re.findall(r'terngrad\.(\w+)', code))
  assert used == {'parallelize'} and used <= set(terngrad.__all__)


def test_a_page_leads_to_it():
  pages = pathlib.Path(TUTORIAL.parent).glob('*.md')
  assert any(f']({TUTORIAL.name})' in page.read_text() for page in pages)


@pytest.mark.slow
@pytest.mark.cluster
def test_its_cells_run_from_top_to_bottom(tmp_path):
  with processes.Processes() as started:
    started.start('-m', 'tests.examples.notebook', TUTORIAL, tmp_path)
    (ended,) = started.wait()
  assert ended.code == 0, ended.log
  assert 'train: 1280 images' in ended.log and 'test: 96 images' in ended.log
  speeds = re.findall(r'(\d+) images/s on (\d) device', ended.log)
  assert [devices for _, devices in speeds] == ['1', '2', '2']
  assert all(int(speed) > 0 for speed, _ in speeds)
  epochs = re.findall(
    r'test accuracy ([\d.]+)% of 96, ([\d.]+) bits', ended.log
  )
  assert len(epochs) == 2 + 9 + 9
  floats, ternary = epochs[10], epochs[19]
  assert float(floats[0]) > 85 and float(ternary[0]) > 85
  assert float(ternary[1]) < 2 < 32 <= float(floats[1])
  assert f'read again: {floats[0]}%' in ended.log
  assert ended.log.count('parameters are equal to the bit') == 2
  titles = re.findall(r'title: (\w+) \(\d+%\) (\w+)', ended.log)
  assert len(titles) == 16
  assert {*titles} <= {('RIGHT', 'green'), ('WRONG', 'red')}
  assert titles.count(('RIGHT', 'green')) > 11
  for number in range(3):
    picture = matplotlib.image.imread(tmp_path / f'{number}.png')
    assert picture.std() > 0.05
