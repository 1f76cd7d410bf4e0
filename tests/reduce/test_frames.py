"""A gradient's way to its kernel can be followed by a stranger."""

import pytest

from tests import frames

_MOST_LINES = 40


@pytest.fixture(scope='module')
def routes():
  """{(route, direction): [(path, name, lines)]} of `tests.frames`."""
  return frames.find_routes()


@pytest.mark.parametrize(
  ('route', 'encode', 'decode'),
  [('fit', 10, 8), ('virtual', 9, 6), ('towers', 8, 4), ('servers', 8, 4)],
)
def test_a_gradient_passes_few_functions(routes, route, encode, decode):
  assert 3 <= len(routes[route, 'encode']) <= encode
  assert 3 <= len(routes[route, 'decode']) <= decode


def test_the_functions_of_a_route_are_short(routes):
  found = {one for route in routes.values() for one in route}
  long = [one for one in found if one[2] > _MOST_LINES]
  assert not long
