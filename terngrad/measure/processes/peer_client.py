"""Starts a process with PyTorch, `peer_process`, and asks it for steps."""

import contextlib
import json
import os
import pathlib
import select
import subprocess
import sys
from types import TracebackType
from typing import IO
from typing import Any
from typing import cast

from terngrad import errors
from terngrad.children import endings
from terngrad.children import stderr_copy

_SCRIPT = pathlib.Path(__file__).with_name('peer_process.py')
# PyTorch's import, also from a slow disk.
_START_SECONDS = 120.0
# Variables of this environment, which would lead another Python to its modules.
_NOT_PASSED = ('PYTHONPATH', 'PYTHONHOME', 'VIRTUAL_ENV')
_MOST_CHARACTERS = 10**5


class PeerLostError(errors.TrainingError):
  """PyTorch reported an error in a step, as after the loss of a process."""


class PeerProcess:
  """A process with PyTorch, as a context that ends it."""

  def __init__(self, python: str) -> None:
    """Starts the process.

    Args:
      python: path of the interpreter; '' for that of this process.

    Raises:
      errors.ConfigError: it cannot be started.
    """
    self.python = python or sys.executable
    passed = {k: v for k, v in os.environ.items() if k not in _NOT_PASSED}
    self._copy = stderr_copy.StderrCopy()
    try:
      self._process = subprocess.Popen(
        [self.python, os.fspath(_SCRIPT)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=self._copy.writer,
        text=True,
        env=passed | endings.environment(),
      )
    except OSError as error:
      self._copy.close()
      raise self._refusal(str(error.strerror)) from error
    # Not None, because of `PIPE`.
    self._requests = cast(IO[str], self._process.stdin)
    self._answers = cast(IO[str], self._process.stdout)

  def __enter__(self) -> 'PeerProcess':
    """Returns the process."""
    return self

  def __exit__(
    self,
    kind: type[BaseException] | None,
    error: BaseException | None,
    traceback: TracebackType | None,
  ) -> None:
    """Ends the process."""
    del kind, error, traceback
    self._process.kill()
    self._process.wait()
    self._answers.close()
    with contextlib.suppress(BrokenPipeError):
      self._requests.close()
    self._copy.close()

  def describe(self) -> dict[str, Any]:
    """Returns the versions of Python and PyTorch.

    Raises:
      errors.ConfigError: the interpreter lacks PyTorch, or is no Python.
    """
    self._send('describe')
    if not select.select([self._answers], [], [], _START_SECONDS)[0]:
      raise self._refusal(f'no answer within {_START_SECONDS:g} seconds')
    answer = self._receive()
    if answer is None and endings.killed_by(self._process.wait()) is None:
      raise self._refusal('a program that ended without an answer')
    if answer is None:
      raise errors.ConfigError(self._end_message())
    if 'python' not in answer:
      raise self._refusal('another program')
    if 'missing' in answer:
      raise self._refusal(
        f'Python {answer["python"]} without {answer["missing"]}'
      )
    return answer

  def ask(self, act: str, **values: Any) -> dict[str, Any]:
    """Sends a request, and waits for the answer.

    Raises:
      PeerLostError: PyTorch reported an error.
      errors.TrainingError: the process ended.
    """
    self._send(act, **values)
    answer = self._receive()
    if answer is None:
      raise errors.TrainingError(self._end_message())
    if 'error' in answer:
      raise PeerLostError(
        f'PyTorch: expected to {act} together with all processes, received: '
        f'{answer["error"][:300]}. Read what the other processes print.'
      )
    return answer

  def _send(self, act: str, **values: Any) -> None:
    # A process that has ended is found when its answer is read.
    with contextlib.suppress(BrokenPipeError):
      self._requests.write(json.dumps({'do': act, **values}) + '\n')
      self._requests.flush()

  def _receive(self) -> dict[str, Any] | None:
    """Returns the next answer; None if the process ended."""
    line = self._answers.readline(_MOST_CHARACTERS)
    if not line:
      return None
    try:
      answer = json.loads(line)
    except ValueError:
      answer = line
    return answer if isinstance(answer, dict) else {}

  def _end_message(self) -> str:
    code = self._process.wait()
    return endings.describe(
      f'PyTorch in {self.python}',
      code,
      self._copy.close(),
      'Leave this case out, or give the Python of another environment with '
      'PyTorch: --peer_python=ENV/bin/python.',
    )

  def _refusal(self, received: str) -> errors.ConfigError:
    return errors.ConfigError(
      'peer_python: expected a Python interpreter with PyTorch, received '
      f'{self.python}: {received}. Install PyTorch into an environment of its '
      'own (python -m venv ENV; ENV/bin/pip install torch), and give '
      '--peer_python=ENV/bin/python; or remove the case.'
    )
