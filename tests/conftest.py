"""What all tests share: four logical CPU devices, one warm process of programs.

And the mark `gate_every`, by which the fast gate takes some cases of a test.
"""

import collections
import gc
import os
import zlib

import pytest

DEVICES = 4
# Programs that tests start leave the user's cache of compiled code alone.
os.environ.setdefault('TERNGRAD_XLA_CACHE', '0')


def pytest_configure(config):
  """Divides the CPU, except in the process that only hands out the tests."""
  if config.getoption('numprocesses', None):
    return
  import tensorflow as tf

  tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices('CPU')[0],
    [tf.config.LogicalDeviceConfiguration()] * DEVICES,
  )


@pytest.fixture(scope='session')
def worker(tmp_path_factory):
  """A process that runs programs one after the other; see programs.Worker."""
  from tests.bin import programs

  with programs.Worker(tmp_path_factory.mktemp('worker')) as process:
    yield process


@pytest.fixture
def eager_functions():
  """For tests of few steps whose claim is not about compiled programs."""
  from tests import eager

  with eager.functions():
    yield


@pytest.fixture
def eager_in_gate(request):
  """`eager_functions`, except in cases that are slow: they stay compiled."""
  if not request.node.get_closest_marker('slow'):
    request.getfixturevalue('eager_functions')


def pytest_collection_finish():
  """Exempts what is imported and collected by now from garbage collection.

  It lives as long as the process, and each full collection looked at all of it.
  """
  gc.collect()
  gc.freeze()


# What modules with tests that start processes import.
STARTERS = ('forked', 'programs', 'subprocess')


def sort_by_length(items):
  """Puts files first whose tests are long: they start processes.

  Then files with many tests. pytest-xdist hands files to its processes in this
  order, so that the last ones are short and the processes end together.
  """
  sizes = collections.Counter(item.path for item in items)

  def key(item):
    module = getattr(item, 'module', None)
    starts = any(hasattr(module, name) for name in STARTERS)
    return not starts, -sizes[item.path], item.path

  items.sort(key=key)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
  """Sorts the tests; marks some as slow."""
  sort_by_length(items)
  mark_cases(items)


def mark_cases(items):
  """Marks as slow what `gate_every(n)` leaves out: all but every n-th case.

  Tests of one matrix begin at other cases, so that together they see them all.
  """
  tests = collections.defaultdict(list)
  for item in items:
    if item.get_closest_marker('gate_every'):
      if not item.get_closest_marker('slow'):
        tests[item.nodeid.partition('[')[0]].append(item)
  for name, cases in tests.items():
    (every,) = cases[0].get_closest_marker('gate_every').args
    first = zlib.crc32(name.encode()) % min(every, len(cases))
    for i, item in enumerate(cases):
      if i % every != first:
        item.add_marker(pytest.mark.slow)
