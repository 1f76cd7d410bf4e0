"""What changed of the public surface since 0.2.0 is in the changelog."""

import json
import pathlib
import re

import pytest

from tests.surface import public

_HERE = pathlib.Path(__file__).parent
_CHANGELOG = _HERE.parents[1] / 'CHANGELOG.md'


def unreleased():
  """The changelog since 0.2.0."""
  text = _CHANGELOG.read_text(encoding='utf-8')
  return text.partition('## [0.2.0]')[0]


@pytest.fixture(scope='module')
def since_release():
  text = (_HERE / '0.2.0.json').read_text(encoding='utf-8')
  return public.differences(json.loads(text), public.surface())


def test_every_difference_to_the_release_is_in_the_changelog(since_release):
  words = set(re.findall(r'\w+', unreleased()))
  missing = {
    name: what
    for name, what in since_release.items()
    if re.split(r'[^\w]', name)[-1] not in words
  }
  assert not missing


def test_an_added_flag_is_detected(since_release):
  assert since_release['commands: train mnist threads'] == 'added'


def test_differences_are_named():
  before = {
    'python': {'a.f': '(x)', 'a.g': '()'},
    'commands': {'c': {'d': '1'}},
  }
  now = {'python': {'a.f': '(x, y=2)'}, 'commands': {'c': {'d': '2'}}}
  assert public.differences(before, now) == {
    'python: a.f': '(x) -> (x, y=2)',
    'python: a.g': 'removed',
    'commands: c d': '1 -> 2',
  }
