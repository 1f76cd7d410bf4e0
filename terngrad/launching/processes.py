"""A process of a run on this machine: its start, output, signals and end."""

import contextlib
import errno
import os
import pathlib
import queue
import secrets
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from collections.abc import Sequence
from typing import NamedTuple
from typing import TypeAlias

from terngrad import errors
from terngrad import signal_guard
from terngrad import signals
from terngrad.launching import output

# After a signal the launcher has `signal_guard.seconds` as well. It kills
# programs earlier, since nobody else ends those that a program has left.
_BEFORE_OWN_END = 0.95
# Seconds between two looks at the processes that a program has left.
_POLL_SECONDS = 0.1

# A process that ended and its exit code, negative if a signal killed it; or
# None and a received signal.
# SimpleQueue is reentrant, so signal handlers may use it.
Events: TypeAlias = 'queue.SimpleQueue[tuple[Process | None, int]]'


class ProcessCommand(NamedTuple):
  """A process to start.

  Attributes:
    label: prefix of its log lines.
    words: its command line.
    variables: additional environment variables.
    is_program: True sends signals also to the processes that it starts, and
      ends those that it leaves. Trainers do both themselves.
  """

  label: str
  words: Sequence[str]
  variables: Mapping[str, str] = {}
  is_program: bool = False


class Process:
  """A running task.

  A program's signals go to its process group. When the program itself ends,
  the rest of its group is ended too. Trainers pass signals on themselves.

  Attributes:
    label: prefix of its log lines.
    deadline: when it is killed, in seconds of `time.monotonic`; None until it
      is asked to end.
    is_program: whether it is no trainer.
  """

  def __init__(self, task: ProcessCommand, events: Events) -> None:
    """Starts a task.

    Args:
      task: the task.
      events: receives this process and its exit code when it ends.

    Raises:
      terngrad.errors.ConfigError: the system cannot start it.
    """
    self.label = task.label
    self.deadline: float | None = None
    self._events = events
    self.is_program = task.is_program
    # Until the process is reaped, no other process or group has its number.
    self._lock = threading.Lock()
    self._is_reaped = False
    self._output = _Output(task.label)
    try:
      self._process = subprocess.Popen(
        task.words,
        stdin=subprocess.DEVNULL,
        stdout=self._output.writer,
        stderr=subprocess.STDOUT,
        # Ctrl-C reaches only the launcher, which forwards it once.
        start_new_session=True,
        env={**os.environ, **signals.environment(), **task.variables},
      )
    except BaseException as error:
      self._output.read_to_end()
      if isinstance(error, OSError):
        raise _refusal(task.words[0], error) from error
      raise
    self._thread = threading.Thread(target=self._watch)
    self._thread.start()

  def signal(self, number: int) -> None:
    """Sends a signal, and resumes the process if it is suspended."""
    send = os.killpg if self.is_program else os.kill
    with self._lock:
      if self._is_reaped:
        return
      for each in (number, signal.SIGCONT):
        with contextlib.suppress(ProcessLookupError, PermissionError):
          send(self._process.pid, each)

  def forward(self, number: int) -> None:
    """Sends a signal that the launcher received."""
    self._set_deadline(self._grace * _BEFORE_OWN_END)
    self.signal(number)

  def stop(self) -> None:
    """Sends SIGTERM, unless the process was already asked to end.

    A second signal would interrupt what it saves after the first one.
    """
    if self._set_deadline(self._grace):
      self.signal(signal.SIGTERM)

  def join(self) -> None:
    """Waits until the process and its group ended; kills them at `deadline`.

    Call `stop` or `forward` first.
    """
    self._thread.join(max(0.0, (self.deadline or 0.0) - time.monotonic()))
    if self._thread.is_alive():
      self.signal(signal.SIGKILL)
    self._thread.join()

  @property
  def _grace(self) -> float:
    """Seconds to end after a signal."""
    if self.is_program:
      return signal_guard.seconds()
    return signal_guard.STOP_SECONDS

  def _set_deadline(self, seconds: float) -> bool:
    """Sets the deadline if there is none; returns whether it did."""
    with self._lock:
      if self.deadline is not None:
        return False
      self.deadline = time.monotonic() + seconds
      return True

  def _watch(self) -> None:
    """Waits for the end of the process, reports it and reaps the process."""
    ended = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
    # Without WNOHANG there is always a result.
    code = ended.si_status if ended else 0
    if ended and ended.si_code != os.CLD_EXITED:
      code = -code
    if self.is_program:
      self.stop()
      # Its last lines come before the message about its end.
      self._output.flush()
      self._events.put((self, code))
      self._end_group()
      self._output.close()
    else:
      self._output.read_to_end()
    with self._lock:
      self._process.wait()
      self._is_reaped = True
    if not self.is_program:
      self._events.put((self, code))

  def _end_group(self) -> None:
    """Waits until the group is empty or late, then kills the rest of it."""
    while _has_members(self._process.pid):
      if time.monotonic() >= (self.deadline or 0.0):
        break
      time.sleep(_POLL_SECONDS)
    # Also after an empty group: a process may have started during the look.
    self.signal(signal.SIGKILL)


def end_all(processes: Sequence[Process]) -> None:
  """Asks all processes to end, then waits for all, up to their deadlines."""
  for process in processes:
    process.stop()
  for process in processes:
    process.join()


class _Output:
  """Prints the lines that processes write to a pipe, with a label.

  A process may leave others that hold the pipe open, so its end may never
  come. Instead this class writes a mark itself: all that was written before
  the mark is printed when the mark has been read.

  Attributes:
    writer: the descriptor to write to.
  """

  def __init__(self, label: str) -> None:
    """Opens the pipe and starts to read it."""
    reader, self.writer = os.pipe()
    self._label = label
    self._mark = f'\0{secrets.token_hex(16)}\0'
    self._marks: queue.SimpleQueue[None] = queue.SimpleQueue()
    self._is_closing = False
    self._thread = threading.Thread(target=self._read, args=(reader,))
    self._thread.start()

  def flush(self) -> None:
    """Waits until all that has been written is printed."""
    # OSError: nobody can read what this program prints.
    with contextlib.suppress(OSError):
      os.write(self.writer, f'{self._mark}\n'.encode())
      self._marks.get()

  def close(self) -> None:
    """Prints what has been written, and ends."""
    self._is_closing = True
    self.flush()
    self.read_to_end()

  def read_to_end(self) -> None:
    """Prints all lines until no process has the pipe open, and ends."""
    os.close(self.writer)
    self._thread.join()

  def _read(self, reader: int) -> None:
    try:
      with open(reader, errors='replace') as lines:
        for line in lines:
          text, mark, _ = line.rstrip().partition(self._mark)
          if text or not mark:
            # A pipe that nobody empties would block or end the process.
            output.try_say(f'[{self._label}] {text}')
          if mark:
            if self._is_closing:
              return
            self._marks.put(None)
    finally:
      self._marks.put(None)


def _has_members(group: int) -> bool:
  """Returns whether any process of a group runs; needs /proc."""
  for path in pathlib.Path('/proc').glob('[0-9]*/stat'):
    with contextlib.suppress(OSError, ValueError):
      # The program's name, in brackets, may contain any characters.
      words = path.read_text(errors='replace').rpartition(')')[2].split()
      if words[0] != 'Z' and int(words[2]) == group:
        return True
  return False


def _refusal(program: str, error: OSError) -> errors.ConfigError:
  """Makes the error for a program that the system cannot start."""
  remedy = 'Check that the same command starts without `terngrad launch`.'
  if error.errno == errno.ENOEXEC:
    remedy = (
      f'Start a Python file with `-- python {program}`, or add a first line '
      'such as #!/usr/bin/env python.'
    )
  return errors.ConfigError(
    f'`-- {program} ...`: expected a program that can be started, received: '
    f'{error.strerror}. {remedy}'
  )
