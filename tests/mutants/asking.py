"""Asks tests about a mutant, in a process forked from one with TensorFlow.

That process has imported nothing of the project's: each of its children finds
what stands in its tree.
"""

import contextlib
import faulthandler
import os
import resource
import signal
import sys
import traceback

import pytest

FAST = 'not slow and not cluster and not gpu'
# A hang is what takes longer than this and ten times its time, in seconds.
_PATIENCE = 60
_UNKNOWN = 600
_MEMORY = 16 * 2**30


class Judge:
  """A plugin of pytest: asks the wanted tests in their order, to the first no.

  What is not in the map, such as a case that the mutant has made, is asked too.
  """

  def __init__(self, costs, wanted, path):
    """Args as of `ask`; `path` is of a file for the name of the one that fails.

    `wanted` is None for all.
    """
    self._costs = costs
    self._wanted = wanted
    self._path = path

  @pytest.hookimpl(trylast=True)
  def pytest_collection_modifyitems(self, config, items):
    if self._wanted is None:
      return
    place = {name: i for i, name in enumerate(self._wanted)}
    asked = [
      item
      for item in items
      if item.nodeid in place or item.nodeid not in self._costs
    ]
    left = [item for item in items if item not in set(asked)]
    config.hook.pytest_deselected(items=left)
    items[:] = sorted(asked, key=lambda i: place.get(i.nodeid, len(place)))

  @pytest.hookimpl(wrapper=True)
  def pytest_runtest_protocol(self, item):
    cost = self._costs.get(item.nodeid)
    _wait_no_longer_than(_UNKNOWN if cost is None else _PATIENCE + 10 * cost)
    return (yield)

  def pytest_runtest_logreport(self, report):
    if report.failed:
      self._path.write_text(report.nodeid, encoding='utf-8')

  # Of a file that cannot be imported.
  pytest_collectreport = pytest_runtest_logreport


def ask(tree, folder, files, marks, plugin, first_ends=True):
  """Runs tests in a child.

  Args:
    tree: `pathlib.Path` of the project's copy.
    folder: for the child: it runs in it and leaves its output there.
    files: names of the tests' files in the tree.
    marks: which tests pytest takes, such as `FAST`.
    plugin: of pytest.
    first_ends: whether the first that fails ends it.

  Returns:
    The code of its end, negative for a signal.
  """
  child = os.fork()
  if not child:
    code = 70
    try:
      code = _run(tree, folder, files, marks, plugin, first_ends)
    except BaseException:
      traceback.print_exc()
    finally:
      sys.stdout.flush()
      os._exit(int(code))
  _, status = os.waitpid(child, 0)
  # What tests have started ends with them.
  with contextlib.suppress(ProcessLookupError):
    os.killpg(child, signal.SIGKILL)
  return os.waitstatus_to_exitcode(status)


def _run(tree, folder, files, marks, plugin, first_ends):
  os.setsid()
  resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
  out = os.open(folder / 'output', os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
  for number in (1, 2):
    os.dup2(out, number)
  os.chdir(folder)
  for name in [n for n in sys.modules if n.partition('.')[0] == 'tests']:
    del sys.modules[name]
  root = os.fspath(tree)
  sys.path[0] = root
  os.environ['PYTHONPATH'] = root
  if first_ends:
    _wait_no_longer_than(_UNKNOWN)
  words = ['-c', tree / 'pyproject.toml', '--rootdir', root, '-q']
  words += ['-x'] if first_ends else []
  words += ['-p', 'no:cacheprovider', '-p', 'no:faulthandler', '-m', marks]
  words += ['--basetemp', folder / 'work']
  words += [tree / file for file in files]
  return pytest.main([os.fspath(word) for word in words], plugins=[plugin])


def _wait_no_longer_than(seconds):
  """Ends this process after so long, unless it is told again."""
  faulthandler.dump_traceback_later(seconds, exit=True, file=sys.__stderr__)
