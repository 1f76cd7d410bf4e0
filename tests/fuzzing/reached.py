"""Which steps from line to line an input reaches, and which lines all did."""

import importlib
import inspect
import pathlib
import sys
import types


class Reached:
  """Watches the functions of some modules.

  Attributes:
    steps: set of (file, line before, line) that inputs reached so far.
  """

  def __init__(self, modules):
    """Watches modules by their dotted names."""
    self._files = {
      importlib.import_module(name).__file__: name for name in modules
    }
    self.steps = set()
    self._new = set()

  def run(self, function, *arguments):
    """Calls a function; (whether a step was new, the error or None)."""
    self._new, raised = set(), None
    before = sys.gettrace()
    sys.settrace(self._enter)
    try:
      function(*arguments)
    except Exception as error:
      raised = error
    finally:
      sys.settrace(before)
    fresh = self._new - self.steps
    self.steps |= fresh
    return bool(fresh), raised

  def _enter(self, frame, event, argument):
    del event, argument
    file = frame.f_code.co_filename
    if file not in self._files:
      return None
    last = frame.f_lineno
    new = self._new

    def step(frame, event, argument):
      nonlocal last
      del argument
      if event == 'line':
        new.add((file, last, frame.f_lineno))
        last = frame.f_lineno
      return step

    return step

  def shares(self):
    """{module: (lines reached, lines there are)}, of functions alone."""
    return {
      name: (
        len(there & {s[2] for s in self.steps if s[0] == file}),
        len(there),
      )
      for file, name in self._files.items()
      for there in [_lines(file)]
    }


def _lines(file):
  """The lines of all functions of a module."""
  source = pathlib.Path(file).read_text(encoding='utf-8')
  found, codes = set(), [compile(source, file, 'exec')]
  while codes:
    code = codes.pop()
    codes += [c for c in code.co_consts if isinstance(c, types.CodeType)]
    # Without the module's and classes' own lines, which run when imported; the
    # first is that of `def`.
    if code.co_flags & inspect.CO_OPTIMIZED:
      found |= {line for _, _, line in code.co_lines() if line} - {
        code.co_firstlineno
      }
  return found
