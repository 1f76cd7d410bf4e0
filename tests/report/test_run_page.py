"""The page of runs: its contents, its size, and that it loads nothing."""

import base64
import io
import re
import xml.etree.ElementTree

import numpy as np
import pytest
from PIL import Image

from terngrad.report import curves
from terngrad.report import run_facts
from terngrad.report import run_page
from terngrad.training import metrics
from tests.report import markup

TRAINED = [
  {
    'step': step,
    'total_loss': 2.0 / step,
    'entropy_loss': None if step == 20 else 1.0 / step,
    'bits_per_element': 1.6,
    'examples_per_sec': 900.0 + step,
    'seconds': 0.5 * step,
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


def reported(trained=None, **facts):
  return run_facts.report(trained or TRAINED, SCORED, None, facts)


def page(title='run', runs=None, shown=()):
  return run_page.page(title, runs or {title: reported()}, list(shown))


def table(text):
  """The facts of a page: cells by heading."""
  rows = re.findall(r'<tr><th>([^<]+)</th>(.*)</tr>', text)
  return {name: re.findall('<td>([^<]*)</td>', cells) for name, cells in rows}


def long_run(records, seed):
  random = np.random.default_rng(seed)
  return [
    {
      'step': 10 * n,
      'total_loss': 2.5 / n + random.random(),
      'entropy_loss': 2.3 / n + random.random(),
      'entropy_loss_smoothed': 2.3 / n + 0.1 * random.random(),
      'learning_rate': 0.01 / n,
      'bits_per_element': 1.6,
      'examples_per_sec': 900 + random.random(),
      'seconds': 1.0 * n,
    }
    for n in range(1, records + 1)
  ]


def test_every_curve_with_finite_values_is_found():
  found = {plot.title: plot for plot in curves.plots(TRAINED, SCORED)}
  assert list(found) == [
    'loss',
    'accuracy, %',
    'zeros among the codes, %',
    'bits sent per element',
    'examples/s',
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


@pytest.mark.parametrize('value', [float('inf'), float('nan'), 10**400, 1e305])
def test_numbers_that_cannot_be_drawn_are_left_out(value):
  records = [{'step': 1, 'total_loss': 1.0}, {'step': 2, 'total_loss': value}]
  records.append({'step': value, 'total_loss': 2.0})
  (plot,) = curves.plots(records, [])
  assert plot.curves[0].points == [(1, 1.0)]
  assert 'NaN' not in curves.svg(plot) and 'inf' not in curves.svg(plot)


def test_learning_curves_are_first_and_constants_are_listed():
  text = page()
  titles = re.findall('<figcaption>([^<]+)<?', text)
  assert [title.strip() for title in titles] == ['loss', 'examples/s']
  assert text.index('<svg') < text.index('<h2>Run</h2>')
  facts = table(text)
  assert facts['bits sent per element'] == ['1.60']
  assert facts['zeros among the codes, %: a'] == ['70']
  assert facts['top-1 accuracy'] == ['50.00%']


def test_losses_of_training_are_no_subsets():
  names = {'step': 1, 'reg_loss': 1.0, 'total_loss': 1.0, 'test_loss': 0.5}
  loss = next(kind for kind in metrics.EVALUATION if kind.name == 'loss')
  assert metrics.epoch_subsets([names], loss) == ['test']


def test_virtual_nodes_have_no_seconds_and_no_images_per_second():
  run = reported()
  assert table(page())['seconds of training'] == ['15']
  last = dict(run.facts)
  del last['seconds of training']
  shown = page(runs={'run': run._replace(virtual=True, facts=last)})
  assert 'seconds of training' not in shown and '>examples/s' not in shown
  assert 'Virtual nodes share one machine' in shown


def test_runs_are_compared_with_a_curve_each():
  runs = {
    'float32': reported(long_run(50, 1), codec='identity'),
    'ternary': reported(long_run(50, 2), codec='ternary'),
  }
  text = page('Runs', runs)
  figures = re.findall('<figure class="plot">.*?</figure>', text, re.DOTALL)
  titles = [re.search('<figcaption>([^<]+)', one)[1] for one in figures]
  assert [title.strip() for title in titles] == [
    'loss: total',
    # Where there is a moving average, the loss itself is left out.
    'loss: cross entropy, moving average',
    'examples/s',
    'learning rate',
  ]
  for one in figures:
    names = re.findall('data-name="([^"]+)"', one)
    assert names == ['float32', 'ternary']
  facts = table(text)
  assert facts['codec'] == ['identity', 'ternary']
  assert facts['bits sent per element'] == ['1.60', '1.60']


def test_a_curve_of_one_of_several_runs_is_named():
  sparse = [{'step': n, 'tower_0/a/binary/sparsity': n / 9} for n in (1, 2)]
  runs = {'plain': reported(), 'coded': reported([*TRAINED, *sparse])}
  runs['plain'] = runs['plain']._replace(trained=TRAINED[:3])
  text = page('Runs', runs)
  (zeros,) = re.findall('<figcaption>zeros.*?</figure>', text, re.DOTALL)
  assert re.findall('<span>([^<]+)</span>', zeros) == ['coded']


def test_options_that_differ_are_shown_and_the_others_are_folded():
  common = {'momentum': '0.9'}
  runs = {
    'a': reported()._replace(options={'codec': 'x', **common}),
    'b': reported()._replace(options={'codec': 'y', **common, 'only': 'b'}),
  }
  shown, folded = page('Runs', runs).split('<details>')
  assert '<th>codec</th><td>x</td><td>y</td>' in shown
  assert '<th>only</th><td></td><td>b</td>' in shown
  assert '<th>momentum</th><td>0.9</td><td>0.9</td>' in folded


def test_options_are_folded():
  run = reported()._replace(options={'momentum': '0.9'})
  folded = re.search('<details>.*?</details>', page(runs={'r': run}), re.DOTALL)
  assert '<th>momentum</th><td>0.9</td>' in folded[0]
  assert '<details>' not in page()


@pytest.mark.parametrize('number', [1, 10])
def test_a_page_without_images_is_below_100_kilobytes(number):
  options = {f'an_option_{i}': '0.0005' for i in range(50)}
  runs = {
    f'a run with a name {n}': reported(long_run(3000, n))._replace(
      options=options
    )
    for n in range(number)
  }
  text = page('Runs', runs)
  assert 30_000 < len(text.encode()) < 100_000
  assert 'points are means of' in text


def test_plots_are_svg_and_reproducible():
  for plot in curves.plots(TRAINED, SCORED):
    drawn = curves.svg(plot)
    assert xml.etree.ElementTree.fromstring(drawn).tag == 'figure'
    assert drawn == curves.svg(plot)
  assert page() == page()


def test_wrong_predictions_are_red_and_show_the_true_class():
  text = page(shown=examples({0: 'cat', 1: 'dog'}))
  right, wrong = re.findall(r'<figure class="(\w+)">.*?</figure>', text)
  assert (right, wrong) == ('RIGHT', 'WRONG')
  assert '<b>RIGHT</b><br>dog 90%</figcaption>' in text
  assert '<b>WRONG</b><br>cat 75%<br>is dog</figcaption>' in text
  assert '.RIGHT b { color: var(--good); }' in text
  assert '.WRONG b { color: var(--bad); }' in text
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
  markup.check_self_contained(page(shown=examples()))


def test_names_are_escaped():
  bad = '"><script>alert(1)</script></svg>'
  run = reported()._replace(facts={bad: bad}, options={bad: bad})
  sparsity = f'tower_0/{bad}/binary/sparsity'
  run = run._replace(
    trained=[*TRAINED, *({'step': n, sparsity: n / 50} for n in (1, 2))]
  )
  for runs in ({bad: run}, {bad: run, 'other': run}):
    text = page(bad, runs, examples({0: bad, 1: bad}))
    markup.check_self_contained(text)
    assert text.count('&lt;script&gt;') >= 6
