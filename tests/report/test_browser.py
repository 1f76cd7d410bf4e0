"""Pages in a headless browser: values, hidden curves, smoothing, sorting."""

import json
import re

import pandas as pd
import pytest

from terngrad.report import run_facts
from terngrad.report import run_page
from terngrad.report import sweep
from terngrad.report import sweep_page
from tests.report import browser

pytestmark = [
  pytest.mark.slow,
  pytest.mark.skipif(not browser.PROGRAM, reason='needs chromium on the path'),
]
BAD = '<img src=x onerror="document.title=1">'
# Runs after the page's script, and leaves what it saw in the page.
_ACTIONS = """
<script>
const seen = {};
const q = text => document.querySelector(text);
try {
  %s
} catch (error) { seen.error = String(error); }
seen.title = document.title;
const made = document.createElement('pre');
made.id = 'seen';
made.textContent = JSON.stringify(seen);
document.body.append(made);
</script>
"""


def see(page, tmp_path, actions):
  """Returns what the actions put into `seen`, in a browser."""
  path = tmp_path / 'page.html'
  path.write_text(page.replace('</body>', _ACTIONS % actions + '</body>'))
  text = browser.dump(path.as_uri(), tmp_path / 'profile')
  found = re.search('<pre id="seen">(.*?)</pre>', text, re.DOTALL)[1]
  for mark, letter in (('&lt;', '<'), ('&gt;', '>'), ('&amp;', '&')):
    found = found.replace(mark, letter)
  return json.loads(found)


@pytest.fixture(scope='module')
def page():
  def records(factor):
    return [
      {'step': step, 'total_loss': factor / step, 'bits_per_element': 1.6}
      for step in range(10, 110, 10)
    ]

  runs = {
    name: run_facts.report(records(factor), [], None, {})
    for name, factor in (('first', 100.0), (BAD, 200.0))
  }
  return run_page.page('runs', runs)


def test_the_pointer_shows_the_values_of_all_curves(page, tmp_path):
  seen = see(
    page,
    tmp_path,
    """
    const svg = q('.plot svg'), box = svg.getBoundingClientRect();
    const point = at => svg.dispatchEvent(new PointerEvent('pointermove',
      {clientX: box.left + at * box.width, clientY: box.top + 50}));
    seen.before = getComputedStyle(q('.tip')).display;
    point(0.985);
    seen.lines = [...q('.tip').children].map(one => one.textContent);
    seen.during = getComputedStyle(q('.tip')).display;
    seen.images = document.images.length;
    svg.dispatchEvent(new PointerEvent('pointerleave'));
    seen.after = getComputedStyle(q('.tip')).display;
    """,
  )
  assert 'error' not in seen
  assert seen['lines'] == ['step 100', '● first: 1', f'● {BAD}: 2']
  assert (seen['before'], seen['during']) == ('none', 'block')
  assert (seen['after'], seen['images'], seen['title']) == ('none', 0, 'runs')


def test_a_click_on_the_legend_hides_a_curve_and_shows_it_again(page, tmp_path):
  seen = see(
    page,
    tmp_path,
    """
    const shown = () => [...document.querySelectorAll('.curve')].map(
      one => getComputedStyle(one).display !== 'none');
    const entry = q('.legend span');
    seen.before = shown();
    entry.click();
    seen.during = [shown(), entry.getAttribute('aria-pressed')];
    entry.dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter'}));
    seen.after = shown();
    """,
  )
  assert 'error' not in seen
  assert seen['before'] == seen['after'] == [True, True]
  assert seen['during'] == [[False, True], 'false']


def test_smoothing_draws_a_moving_average_beside_the_curve(page, tmp_path):
  seen = see(
    page,
    tmp_path,
    """
    const slider = q('input[type=range]');
    const move = value => {
      slider.value = value;
      slider.dispatchEvent(new Event('input'));
    };
    const paths = () => [...q('.curve').querySelectorAll('path')].map(
      one => one.getAttribute('d'));
    seen.before = paths();
    move(0.5);
    seen.during = paths();
    move(0);
    seen.after = paths();
    """,
  )
  assert 'error' not in seen
  (line,) = seen['before']
  first, average = seen['during']
  assert first == line and seen['after'] == [line]
  places = [re.findall(r'[\d.]+,([\d.]+)', text) for text in (line, average)]
  lines, averages = ([float(y) for y in each] for each in places)
  # The mean of falling values lags behind: it is higher, so its y is less.
  assert averages[0] == lines[0]
  assert all(a < b for a, b in zip(averages[1:], lines[1:], strict=True))


def test_a_page_has_no_errors_and_fits_narrow_and_wide_windows(page, tmp_path):
  seen = see(
    page,
    tmp_path,
    """
    seen.plots = document.querySelectorAll('.plot svg').length;
    const fits = width => {
      document.body.style.width = width + 'px';
      return [...document.querySelectorAll('.plot, .wide')].every(
        one => one.getBoundingClientRect().right <= width + 1);
    };
    seen.fits = [fits(1200), fits(400)];
    """,
  )
  assert seen == {'plots': 1, 'fits': [True, True], 'title': 'runs'}


def test_a_click_on_a_heading_sorts_by_number(tmp_path):
  rows = [
    (name, seed, 100, accuracy, 1.6, 5.0)
    for name, accuracy in (('b', 0.9), ('a', 0.75), (BAD, 0.8))
    for seed in (1, 2)
  ]
  columns = 'variant seed steps accuracy bits_per_element seconds'.split()
  runs = pd.DataFrame(rows, columns=columns)
  empty = pd.DataFrame()
  text = sweep_page.page('s', sweep.summary(runs), runs, empty, empty)
  seen = see(
    text,
    tmp_path,
    """
    const names = () => [...q('table.sortable').tBodies[0].rows].map(
      row => row.cells[0].textContent);
    const heading = q('table.sortable').tHead.rows[0].cells[2];
    seen.heading = heading.textContent;
    heading.click();
    seen.up = names();
    heading.click();
    seen.down = names();
    seen.images = document.images.length;
    """,
  )
  assert 'error' not in seen
  assert seen['heading'] == 'accuracy %'
  assert seen['up'] == ['a', BAD, 'b'] and seen['down'] == ['b', BAD, 'a']
  assert (seen['images'], seen['title']) == (0, 's')
