"""The page of a run: its contents, and that it contains no scripts."""

import base64
import io
import re
import xml.etree.ElementTree

import numpy as np
from PIL import Image

from terngrad.report import curves
from terngrad.report import run_page

TRAINED = [
  {
    'step': step,
    'total_loss': 2.0 / step,
    'entropy_loss': None if step == 20 else 1.0 / step,
    'bits_per_element': 1.6,
    'examples_per_sec': 900.0,
  }
  for step in (10, 20, 30)
] + [
  {'step': 30, 'tower_0/a/binary/sparsity': 0.7},
  {'step': 30, 'tower_1/a/binary/sparsity': 0.6},
]
SCORED = [{'step': 30, 'precision_at_1': 0.5, 'recall_at_5': 0.9}]


def examples(names=None):
  images = np.zeros([2, 4, 5, 3], np.float32)
  images[:, 0] = -1.0
  images[:, 1] = 1.0
  probabilities = np.float32([[0.1, 0.9], [0.75, 0.25]])
  return run_page.predictions(images, np.array([1, 1]), probabilities, names)


def page(title='run', facts=None, shown=()):
  return run_page.page(title, facts or {}, TRAINED, SCORED, list(shown))


def test_every_curve_with_finite_values_is_drawn():
  found = {plot.title: plot for plot in curves.plots(TRAINED, SCORED)}
  assert list(found) == [
    'loss',
    'accuracy, %',
    'zeros among the codes, %',
    'bits sent per element',
    'images/s',
  ]
  losses = {c.name: c.points for c in found['loss'].curves}
  assert losses['total'] == [(10, 0.2), (20, 0.1), (30, 2.0 / 30)]
  # What was not finite is left out, not drawn as something else.
  assert [step for step, _ in losses['cross entropy']] == [10, 30]
  (zeros,) = found['zeros among the codes, %'].curves
  assert (zeros.name, zeros.points) == ('a', [(30, 70.0)])
  assert [c.points for c in found['accuracy, %'].curves] == [
    [(30, 50.0)],
    [(30, 90.0)],
  ]


def test_many_variables_become_three_curves():
  records = [
    {
      'step': step,
      **{f'tower_0/{n}/binary/sparsity': n / 20 for n in range(20)},
    }
    for step in (5, 10)
  ]
  (plot,) = curves.plots(records, [])
  received = {curve.name: curve.points for curve in plot.curves}
  assert received == {
    'greatest of 20 variables': [(5, 95.0), (10, 95.0)],
    'mean': [(5, 47.5), (10, 47.5)],
    'least': [(5, 0.0), (10, 0.0)],
  }


def test_plots_are_svg_and_reproducible():
  for plot in curves.plots(TRAINED, SCORED):
    drawn = curves.svg(plot)
    assert xml.etree.ElementTree.fromstring(drawn).tag.endswith('svg')
    assert drawn == curves.svg(plot)
  assert page().count('<svg') == 5


def test_wrong_predictions_are_red_and_show_the_true_class():
  text = page(shown=examples({0: 'cat', 1: 'dog'}))
  right, wrong = re.findall(r'<figure class="(\w+)">.*?</figure>', text)
  assert (right, wrong) == ('RIGHT', 'WRONG')
  assert '<b>RIGHT</b><br>dog 90%</figcaption>' in text
  assert '<b>WRONG</b><br>cat 75%<br>is dog</figcaption>' in text
  assert '.RIGHT b { color: green; }' in text
  assert '.WRONG b { color: red; }' in text
  assert '1 of 2 right' in text


def test_images_are_scaled_from_black_to_white():
  text = page(shown=examples())
  found = re.findall(r'src="data:image/png;base64,([^"]+)"', text)
  for content in found:
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(content))))
    assert pixels.shape == (4, 5, 3)
    assert (pixels[0].max(), pixels[1].min()) == (0, 255)
  assert len(found) == 2


def test_page_loads_no_other_files():
  text = page(shown=examples())
  assert '<script' not in text
  loaded = re.findall(r'(?:src|href)="([^"]*)"', text)
  assert all(a.startswith(('data:', '#')) for a in loaded)


def test_names_are_escaped():
  bad = '<script>alert(1)</script>'
  text = page(bad, {bad: bad}, examples({0: bad, 1: bad}))
  assert '<script' not in text
  assert text.count('&lt;script&gt;') >= 5
