"""Which tests execute which lines, and how long each takes."""

import collections
import json
import os
import sys
import threading
import time

import pytest

# Of what AutoGraph makes of a function: only its name tells where it is from.
_CONVERTED = '__autograph_generated_file'
_PREFIX = 'tf__'


class Lines:
  """A plugin of pytest that writes a `Map`.

  Lines of a fixture of a module or a class count for all tests that ask for it:
  it runs in the first one alone.
  """

  def __init__(self, root, folder, path):
    """Keeps nothing yet.

    Args:
      root: of the tree, absolute.
      folder: whose lines are looked at, relative to it.
      path: file to write.
    """
    self._root = os.path.join(root, '')
    self._inside = os.path.join(root, folder, '')
    self._path = path
    self._now = set()
    self._lines = collections.defaultdict(set)
    self._of_fixtures = []
    self._items = {}
    self._costs = collections.defaultdict(float)
    self._failed = set()

  def _call(self, frame, event, argument):
    del event, argument
    name = frame.f_code.co_filename
    if name.startswith(self._inside):
      self._now.add((name, frame.f_lineno))
      return self._line
    if _CONVERTED in name:
      self._now.add((None, frame.f_code.co_name.removeprefix(_PREFIX)))
    return None

  def _line(self, frame, event, argument):
    del event, argument
    self._now.add((frame.f_code.co_filename, frame.f_lineno))
    return self._line

  @pytest.hookimpl(wrapper=True)
  def pytest_runtest_protocol(self, item):
    self._items[item.nodeid] = item.fixturenames
    before, self._now = time.perf_counter(), set()
    threading.settrace(self._call)
    sys.settrace(self._call)
    try:
      return (yield)
    finally:
      sys.settrace(None)
      threading.settrace(None)
      self._costs[item.nodeid] = time.perf_counter() - before
      self._lines[item.nodeid] |= self._now

  @pytest.hookimpl(wrapper=True)
  def pytest_fixture_setup(self, fixturedef):
    if fixturedef.scope == 'function':
      return (yield)
    outer, self._now = self._now, set()
    try:
      return (yield)
    finally:
      found = fixturedef.baseid, fixturedef.argname, self._now
      self._of_fixtures.append(found)
      self._now = outer

  def pytest_runtest_logreport(self, report):
    if report.failed:
      self._failed.add(report.nodeid)

  def pytest_sessionfinish(self):
    for base, name, lines in self._of_fixtures:
      for test, fixtures in self._items.items():
        if name in fixtures and test.startswith(base):
          self._lines[test] |= lines
    shown = {
      test: sorted(
        [name.removeprefix(self._root) if name else None, line]
        for name, line in self._lines[test]
        if name
      )
      for test in self._items
    }
    converted = {
      test: sorted(line for name, line in self._lines[test] if name is None)
      for test in self._items
    }
    found = {
      'costs': self._costs,
      'failed': sorted(self._failed),
      'lines': shown,
      'converted': converted,
    }
    with open(self._path, 'w', encoding='utf-8') as file:
      json.dump(found, file)


class Map:
  """What `Lines` wrote.

  Attributes:
    costs: dict of name of a test that passed to seconds.
    failed: list of those that did not; nobody asks them.
  """

  def __init__(self, path):
    with open(path, encoding='utf-8') as file:
      found = json.load(file)
    self.failed = found['failed']
    self.costs = {
      t: s for t, s in found['costs'].items() if t not in set(self.failed)
    }
    self._of_line = collections.defaultdict(set)
    self._of_file = collections.defaultdict(set)
    self._of_name = collections.defaultdict(set)
    for test in self.costs:
      for name, line in found['lines'][test]:
        self._of_line[name, line].add(test)
        self._of_file[name].add(test)
      for name in found['converted'][test]:
        self._of_name[name].add(test)

  def tests(self, path, mutation, function_name, budget, spare):
    """The tests to ask about a mutant, those that will tell soonest first.

    First those that execute its statement, or where that is executed when it is
    imported, its function; in the mirrored file first, then by their time.
    Then, up to `spare` seconds, others of the module: what a cache kept from
    executing again is in the lines of one test only.

    Args:
      path: of the source, in the tree.
      mutation: `mutations.Mutation`.
      function_name: of the function around it; '' for none.
      budget: seconds that the first may take together.
      spare: the same of the others.

    Returns:
      (list of names, how many of them execute it).
    """
    first, last = mutation.lines
    found = self._on(path, first, last) | self._of_name[function_name]
    if not found and mutation.function:
      found = self._on(path, *mutation.function)
    others = self._of_file[path] - found
    if not mutation.function:
      # A module's constant: who knows where it is used.
      others = self.costs.keys() - found
    own = path.removeprefix('terngrad/').removesuffix('.py')
    folder, _, name = own.rpartition('/')
    mirrored = f'tests/{folder}/test_{name}.py'

    def order(test):
      close = test not in self._of_file[path]
      return not test.startswith(mirrored), close, self.costs[test], test

    asked = self._within(sorted(found, key=order), budget)
    more = self._within(sorted(others, key=order), spare)
    return asked + more, len(asked)

  def _on(self, path, first, last):
    lines = (self._of_line[path, n] for n in range(first, last + 1))
    return set().union(*lines)

  def _within(self, tests, seconds):
    chosen = []
    for test in tests:
      seconds -= self.costs[test]
      if seconds < 0 and chosen:
        break
      chosen.append(test)
    return chosen
