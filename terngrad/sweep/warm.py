"""Starts Python programs in processes that have TensorFlow already imported.

The import takes five seconds. A fork server imports TensorFlow, by `preload`,
and little else. The programs are forked from it before any device is
initialized or any flag is defined.
"""

import atexit
import multiprocessing
import os
import runpy
import sys
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from multiprocessing import context
from multiprocessing import reduction
from typing import IO
from typing import Any

from terngrad import quiet
from terngrad.machine import onednn

_context = multiprocessing.get_context('forkserver')
_context.set_forkserver_preload(['terngrad.sweep.preload'])


def start(
  module: str | None,
  arguments: Iterable[object],
  out: IO[Any],
  err: IO[Any],
  folder: str | os.PathLike[str] | None = None,
  environment: Mapping[str, str] | None = None,
) -> context.ForkServerProcess:
  """Starts `python -m MODULE`.

  Args:
    module: name of the module; None runs the first argument as `python -c`
      does.
    arguments: arguments of the program.
    out: file for the standard output.
    err: file for the standard error.
    folder: working directory; None keeps the current one.
    environment: environment variables; None copies this process's.

  Returns:
    The started process.
  """
  # TensorFlow reads these variables when it is imported, which happens in the
  # fork server.
  quiet.prefer_silence()
  onednn.prefer()
  process = _context.Process(
    target=_Target(
      module,
      [str(word) for word in arguments],
      os.fspath(folder or os.getcwd()),
      dict(os.environ if environment is None else environment),
      (out.fileno(), err.fileno()),
    )
  )
  process.start()
  return process


class _Target:
  """The forked process's target; pickling it also transfers its two files."""

  def __init__(
    self,
    module: str | None,
    arguments: Sequence[str],
    folder: str,
    environment: Mapping[str, str],
    files: Sequence[int],
  ) -> None:
    self._program = module, arguments, folder, environment
    self._files = files

  def __getstate__(self) -> tuple[Any, list[Any]]:
    return self._program, [reduction.DupFd(number) for number in self._files]

  def __setstate__(self, state: tuple[Any, list[Any]]) -> None:
    self._program, files = state
    self._files = [file.detach() for file in files]

  def __call__(self) -> None:
    module, arguments, folder, environment = self._program
    for number, file in enumerate(self._files, 1):
      os.dup2(file, number)
      os.close(file)
    # Import this package again, from the path that the new process uses.
    for name in [n for n in sys.modules if n.partition('.')[0] == 'terngrad']:
      del sys.modules[name]
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    paths = environment.get('PYTHONPATH')
    sys.path[:0] = [folder, *(paths.split(os.pathsep) if paths else [])]
    try:
      if module:
        sys.argv = [module, *arguments]
        # For a program that restarts itself.
        sys.orig_argv = [sys.executable, '-m', module, *arguments]
        runpy.run_module(module, run_name='__main__', alter_sys=True)
      else:
        code, *rest = arguments
        sys.argv = ['-c', *rest]
        exec(compile(code, '<string>', 'exec'), {'__name__': '__main__'})
    finally:
      # Processes of `multiprocessing` skip the exit functions.
      atexit._run_exitfuncs()
