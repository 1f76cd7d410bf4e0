"""The notebooks for several devices run in a separate process, and learn."""

import json
import pathlib
import re

import matplotlib.image
import pytest

import terngrad
from tests.examples import notebook
from tests.exchange import processes

TUTORIAL = processes.ROOT / 'docs' / 'tutorial_multi_device.ipynb'
SPLIT = TUTORIAL.with_name('tutorial_split_a_batch.ipynb')
of_each = pytest.mark.parametrize(
  'path', [TUTORIAL, SPLIT], ids=lambda path: path.stem
)


@of_each
def test_the_notebook_is_stored_without_output(path):
  stored = json.loads(path.read_text(encoding='utf-8'))
  assert (stored['nbformat'], stored['nbformat_minor']) == (4, 5)
  cells = stored['cells']
  assert all(not cell.get('outputs') for cell in cells)
  assert len({cell['id'] for cell in cells}) == len(cells)


@of_each
def test_the_notebook_uses_only_public_names(path):
  code = '\n'.join(notebook.code_of(path))
  used = set(re.findall(r'terngrad\.(\w+)', code))
  assert used == {'parallelize'} and used <= set(terngrad.__all__)


@of_each
def test_a_page_links_to_the_notebook(path):
  pages = pathlib.Path(path.parent).glob('*.md')
  assert any(f']({path.name})' in page.read_text() for page in pages)


def log_of(path, folder):
  """Returns the output of a notebook; its figures go to a folder."""
  with processes.Processes() as started:
    started.start('-m', 'tests.examples.notebook', path, folder)
    (ended,) = started.wait()
  assert ended.code == 0, ended.log
  return ended.log


@pytest.mark.slow
def test_a_batch_of_four_is_split_and_both_devices_step_alike(tmp_path):
  log = log_of(SPLIT, tmp_path)
  for device, labels in enumerate(('[0 1]', '[2 3]')):
    line = f'/CPU:{device}: images (2, 28, 28, 1), labels {labels}'
    assert line in log
    assert f'device:CPU:{device}: logits (2, 10)' in log
  assert '[2, 1, 1]' in log
  assert 'Training on: 2 devices' in log
  assert re.search(r'4 examples, loss [\d.]+\n1\.60 bits', log)
  for claim in ('the same on the first device', 'changed', 'the same on both'):
    assert f'{claim}: True' in log
  assert 'all parameters are equal to the bit' in log


@pytest.mark.slow
@pytest.mark.cluster
def test_cells_run_from_top_to_bottom(tmp_path):
  log = log_of(TUTORIAL, tmp_path)
  assert 'train: 1280 images' in log and 'test: 96 images' in log
  speeds = re.findall(r'(\d+) images/s on (\d) device', log)
  assert [devices for _, devices in speeds] == ['1', '2', '2']
  assert all(int(speed) > 0 for speed, _ in speeds)
  epochs = re.findall(r'test accuracy ([\d.]+)% of 96, ([\d.]+) bits', log)
  assert len(epochs) == 2 + 9 + 9
  floats, ternary = epochs[10], epochs[19]
  assert float(floats[0]) > 85 and float(ternary[0]) > 85
  assert float(ternary[1]) < 2 < 32 <= float(floats[1])
  assert f'read again: {floats[0]}%' in log
  assert log.count('parameters are equal to the bit') == 2
  titles = re.findall(r'title: (\w+) \(\d+%\) (\w+)', log)
  assert len(titles) == 16
  assert {*titles} <= {('RIGHT', 'green'), ('WRONG', 'red')}
  assert titles.count(('RIGHT', 'green')) > 11
  for number in range(3):
    picture = matplotlib.image.imread(tmp_path / f'{number}.png')
    assert picture.std() > 0.05
