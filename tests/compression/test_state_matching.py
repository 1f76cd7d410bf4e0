"""Saved states find their variables by path and shape, else by position."""

import pytest

from terngrad.codec import policy
from terngrad.compression import state_matching


def listing(text):
  """Specs of 'path:size path:size'."""
  pairs = (entry.rpartition(':')[::2] for entry in text.split())
  return tuple(policy.VariableSpec(path, (int(size),)) for path, size in pairs)


@pytest.mark.parametrize(
  ('saved', 'present', 'expected'),
  [
    pytest.param('a:1 b:2', 'a:1 b:2', {0: 0, 1: 1}, id='same'),
    pytest.param('a:8 b:8 c:8', 'b:8 c:8', {1: 0, 2: 1}, id='frozen'),
    pytest.param('b:8 c:8', 'a:8 b:8 c:8', {0: 1, 1: 2}, id='thawed'),
    pytest.param('a:8 b:8', 'b:8 a:8', {0: 1, 1: 0}, id='reordered'),
    pytest.param('a:8 b:8', 'b:8 c:8', {1: 0}, id='one went, one came'),
    pytest.param('a:8 old:8', 'a:8 new:8', {0: 0}, id='equal head'),
    pytest.param('a:8 head:8', 'a:8 head:5', {0: 0}, id='smaller head'),
    pytest.param('a:1 b:2', 'c:1 d:2', {0: 0, 1: 1}, id='all renamed'),
    pytest.param('a:1 b:2', 'c:2 d:1', {}, id='other shapes'),
    pytest.param('a:1 b:2', 'c:1', {}, id='other number'),
    pytest.param('v:8 v:8', 'v:8 v:8', {0: 0, 1: 1}, id='equal paths'),
    pytest.param('v:8 v:8 a:8', 'v:8 a:8', {2: 1}, id='equal paths, fewer'),
    pytest.param(':8 :4', ':8 :4', {0: 0, 1: 1}, id='no paths'),
    pytest.param(':8 :4', ':8 :8 :4', {}, id='no paths, more'),
    pytest.param(
      'dense/k:8 dense_1/k:8',
      'dense_2/k:8 dense_3/k:8',
      {0: 0, 1: 1},
      id='built again',
    ),
    pytest.param(
      'words/k:8 dense/k:8',
      'words/k:8 dense_1/k:8',
      {0: 0, 1: 1},
      id='built again, partly named',
    ),
    pytest.param(
      'dense_1/k:8 dense_2/k:8',
      'dense_2/k:8 dense_3/k:8',
      {},
      id='built again, or one went and one came',
    ),
    pytest.param(
      'net/a/k:8 net/b/k:8',
      'net_1/b/k:8 net_1/c/k:4',
      {1: 0},
      id='a model with another number',
    ),
    pytest.param(
      'net/a/k:8 net/b/k:8',
      'other/b/k:8',
      {},
      id='a model with another name',
    ),
  ],
)
def test_a_variable_is_matched_or_excluded(saved, present, expected):
  found = state_matching.match(listing(saved), listing(present))
  assert found == expected
