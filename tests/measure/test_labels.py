"""Names beside markers: they do not overlap, stay inside, and are near."""

import itertools
import random

import pytest
from matplotlib import figure

from terngrad.measure import labels

AREA = labels.Box(0, 0, 400, 300)
FONT, GAP = 7.0, 7.0


def boxes(points, names, area=AREA):
  found = labels.place(points, names, area, FONT, GAP)
  made = []
  for place, name in zip(found, names, strict=True):
    width = 0.62 * FONT * len(name)
    left = place.x if place.right else place.x - width
    made.append((left, place.y - FONT / 2, left + width, place.y + FONT / 2))
  return made


def overlap(a, b):
  return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


@pytest.mark.parametrize('seed', range(5))
@pytest.mark.parametrize('spread', [0, 1, 30, 300])
def test_names_do_not_overlap_and_stay_inside(seed, spread):
  draw = random.Random(seed)
  points = [
    (100 + spread * draw.random(), 150 + spread * draw.random() / 3)
    for _ in range(20)
  ]
  names = ['n' * draw.randint(1, 20) for _ in points]
  made = boxes(points, names)
  pairs = itertools.combinations(made, 2)
  assert not [pair for pair in pairs if overlap(*pair)]
  for left, bottom, right, top in made:
    assert 0 <= left < right <= 400 and 0 <= bottom < top <= 300


def test_a_lone_name_is_beside_its_marker():
  (place,) = labels.place([(10.0, 20.0)], ['name'], AREA, FONT, GAP)
  assert place == labels.Label(17.0, 20.0, True)
  # At the right edge it is at the left of the marker.
  (place,) = labels.place([(399.0, 20.0)], ['name'], AREA, FONT, GAP)
  assert place == labels.Label(392.0, 20.0, False)


@pytest.mark.parametrize('height', [0.0, 299.0])
def test_names_at_an_edge_stay_inside(height):
  points = [(10.0, height)] * 3
  for _, bottom, _, top in boxes(points, ['a', 'b', 'c']):
    assert 0 <= bottom < top <= 300


def test_names_far_from_each_other_are_not_moved():
  points = [(10.0, 20.0), (10.0, 200.0), (300.0, 21.0)]
  found = labels.place(points, ['a', 'b', 'c'], AREA, FONT, GAP)
  assert [place.y for place in found] == [20.0, 200.0, 21.0]


def test_close_names_keep_the_order_of_their_markers():
  points = [(10.0, 100.0 + i) for i in (3, 1, 2, 0)]
  found = labels.place(points, ['aa', 'bb', 'cc', 'dd'], AREA, FONT, GAP)
  order = sorted(range(4), key=lambda i: found[i].y)
  assert order == [3, 1, 2, 0]
  # They move equally far up and down.
  mean = sum(place.y for place in found) / 4
  assert abs(mean - 101.5) < FONT


def test_no_points_have_no_names():
  assert labels.place([], [], AREA, FONT, GAP) == []


def test_names_of_axes_have_the_colors_of_their_markers():
  drawn = figure.Figure()
  axes = drawn.subplots()
  axes.plot([1, 2], [1, 2], 'o')
  drawn.draw_without_rendering()
  labels.annotate(axes, ['a', 'b'], [1, 2], [1, 2], ['C0', 'C1'])
  assert [(t.get_text(), t.get_color()) for t in axes.texts] == [
    ('a', 'C0'),
    ('b', 'C1'),
  ]
