"""A gradient's way to its kernel can be followed by a stranger."""

import collections
import pathlib
import subprocess
import sys

import pytest

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_MOST_LINES = 40


@pytest.fixture(scope='module')
def routes():
  """{(route, direction): [(path, name, lines)]} of `tests.frames`."""
  done = subprocess.run(
    [sys.executable, '-m', 'tests.frames'],
    capture_output=True,
    text=True,
    check=True,
    cwd=_ROOT,
  )
  found = collections.defaultdict(list)
  for line in done.stdout.splitlines():
    route, direction, path, name, lines = line.split()
    found[route, direction].append((path, name, int(lines)))
  return found


@pytest.mark.parametrize(
  ('route', 'encode', 'decode'),
  [('fit', 10, 8), ('virtual', 9, 6), ('towers', 8, 5), ('servers', 8, 5)],
)
def test_a_gradient_passes_few_functions(routes, route, encode, decode):
  assert 3 <= len(routes[route, 'encode']) <= encode
  assert 3 <= len(routes[route, 'decode']) <= decode


def test_the_functions_of_a_route_are_short(routes):
  found = {one for route in routes.values() for one in route}
  long = [one for one in found if one[2] > _MOST_LINES]
  assert not long
