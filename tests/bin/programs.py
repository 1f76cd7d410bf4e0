"""Runs the programs, in processes of their own, and reads what they write."""

import contextlib
import csv
import json
import os
import pathlib
import re
import resource
import tempfile
import threading
from typing import NamedTuple

import tensorflow as tf

from terngrad import signal_guard
from terngrad.sweep import warm

_ROOT = pathlib.Path(__file__).resolve().parents[2]
# Seconds that a program may take, many times what it does, on a busy machine.
LIMIT = 1200
QUIET = {
  'TF_CPP_MIN_LOG_LEVEL': '2',
  'PYTHONPATH': str(_ROOT),
  # After a signal a step may take its time on a busy machine.
  signal_guard.VARIABLE: str(LIMIT),
}


class Finished(NamedTuple):
  """What a program left: its exit code and what it printed."""

  code: int
  out: str
  err: str

  @property
  def error(self):
    """The one line of `err` that is not TensorFlow's."""
    lines = self.err.splitlines()
    (line,) = (line for line in lines if line.startswith('error: '))
    return line


class Program:
  """`python -m terngrad.bin.NAME`, whose lines can be read as they come.

  A name with dots is that of the whole module. `limit` is in seconds: a process
  that runs longer is killed.
  """

  def __init__(self, name, arguments, limit=LIMIT):
    module = name if '.' in name else f'terngrad.bin.{name}'
    # A file and not a pipe, so that it cannot fill up while nobody reads.
    self._err = tempfile.TemporaryFile('w+')
    there, here = os.pipe()
    self._stdout = open(there)  # closed by __exit__
    with open(here, 'w') as out:
      self._process = warm.start(
        module, arguments, out, self._err, environment=os.environ | QUIET
      )
    self._out = []
    # Instead of waiting with a limit in each place that reads.
    self._timer = threading.Timer(limit, self._process.kill)
    self._timer.start()

  def __enter__(self):
    return self

  def __exit__(self, *error):
    del error
    self._process.kill()
    self._process.join()
    self._timer.cancel()
    self._timer.join()
    self._process.close()
    self._stdout.close()
    self._err.close()

  def read_until(self, pattern):
    """Reads lines until one matches; returns it."""
    for line in self._stdout:
      self._out.append(line)
      if re.search(pattern, line):
        return line
    raise AssertionError(f'{pattern} was not printed by {self.wait()}')

  def peak_memory(self):
    """The most MiB of memory that it has held so far."""
    with open(f'/proc/{self._process.pid}/status') as status:
      return int(re.search(r'VmHWM:\s+(\d+) kB', status.read())[1]) / 1024

  def send(self, number):
    """Sends a signal."""
    os.kill(self._process.pid, number)

  def limit(self, resource_kind, value):
    """Limits a resource of `resource`, such as RLIMIT_FSIZE, from now on."""
    with contextlib.suppress(ProcessLookupError):
      resource.prlimit(self._process.pid, resource_kind, (value, value))

  def has_ended(self):
    """Whether it has, without waiting."""
    return self._process.exitcode is not None

  def wait(self):
    """Reads all lines and waits for the end."""
    self._out += self._stdout
    self._process.join()
    self._err.seek(0)
    return Finished(
      self._process.exitcode, ''.join(self._out), self._err.read()
    )


def run(name, *arguments, limit=LIMIT):
  """Runs a program to its end in a process of its own; a `Finished`."""
  with Program(name, arguments, limit) as program:
    return program.wait()


class Worker:
  """A process that runs programs one after the other.

  TensorFlow is started once and not once a program, which is what most of the
  seconds of a short run go to.
  """

  def __init__(self, folder):
    # XLA's cache of compiled functions is for processes of one program: in one
    # of 120 that loaded from it the unwinder met freed code once (SIGSEGV).
    environment = {k: v for k, v in os.environ.items() if k != 'TF_XLA_FLAGS'}
    path = folder / 'requests'
    os.mkfifo(path)
    # Open at both ends, so that nobody waits for the other end.
    self._requests = os.fdopen(os.open(path, os.O_RDWR), 'wb', buffering=0)
    self._log = open(folder / 'stderr', 'w+')  # closed by __exit__
    there, here = os.pipe()
    self._replies = open(there)  # closed by __exit__
    with open(here, 'w') as out:
      self._process = warm.start(
        'tests.bin.run_programs',
        [path],
        *(out, self._log, folder),
        environment=environment | QUIET,
      )

  def __enter__(self):
    return self

  def __exit__(self, *error):
    del error
    self._requests.close()
    self._process.join(LIMIT)
    self._process.close()
    self._replies.close()
    self._log.close()

  def run(self, name, arguments):
    """Runs a program as from a shell.

    Args:
      name: of a module in terngrad.bin, or with dots of any.
      arguments: its words.

    Returns:
      A `Finished`; what escapes as an exception, as Python would show it, is
      in `err`, with code 1.
    """
    request = {'name': name, 'arguments': [str(word) for word in arguments]}
    timer = threading.Timer(LIMIT, self._process.kill)
    timer.start()
    try:
      self._requests.write(f'{json.dumps(request)}\n'.encode())
      reply = self._replies.readline()
    finally:
      timer.cancel()
      timer.join()
    if not reply:
      self._log.seek(0)
      raise AssertionError(f'{request} ended the process: {self._log.read()}')
    return Finished(**json.loads(reply))


def as_flags(**values):
  """Words of a command line."""
  return [f'--{name}={value}' for name, value in values.items()]


def whole_run_arguments(data_dir, train_dir):
  """Ternary gradients on two devices of two nodes each; 45 steps.

  So many that a run that gets a signal after the first ten is seconds from
  its end, however late it reacts; they are 4 epochs of 90 examples.
  """
  return as_flags(
    data_dir=data_dir,
    train_dir=train_dir,
    num_gpus=2,
    num_nodes=4,
    batch_size=8,
    grad_bits=1,
    clip_factor=2.5,
    quantize_logits=True,
    learning_rate_decay_type='polynomial',
    max_steps=45,
    save_iter=8,
  )


def short_run_arguments(data_dir, train_dir, **changes):
  """float32 gradients on two devices of one node each; 4 steps."""
  values = {
    'data_dir': data_dir,
    'train_dir': train_dir,
    'num_gpus': 2,
    'batch_size': 4,
    'max_steps': 4,
    'save_iter': 2,
  }
  return as_flags(**(values | changes))


def one_tower_arguments(data_dir, train_dir, **changes):
  """Four nodes on two devices, of which device 1 is stored; 2 steps."""
  values = {'num_nodes': 4, 'save_tower': 1, 'max_steps': 2}
  return short_run_arguments(data_dir, train_dir, **(values | changes))


def checkpoint_steps(folder):
  """Steps of the checkpoints in a folder, ascending."""
  names = [path.name for path in pathlib.Path(folder).glob('*.index')]
  found = [re.fullmatch(r'model\.ckpt-(\d+)\.index', name) for name in names]
  assert all(found), names
  return sorted(int(match[1]) for match in found)


def tensors(prefix):
  """All that a checkpoint says of the run: name to (shape, bytes)."""
  reader = tf.train.load_checkpoint(str(prefix))
  values = {
    # How often this process has saved is no part of the run.
    name: reader.get_tensor(name)
    for name in reader.get_variable_to_shape_map()
    if not name.startswith(('_CHECKPOINTABLE', 'save_counter'))
  }
  return {
    name: (value.shape, value.tobytes())
    if hasattr(value, 'tobytes')
    else ((), value)
    for name, value in values.items()
  }


def variable(prefix, device, name):
  """A variable of a stored device, 'conv1/kernel'."""
  key = f'tower_{device}/{name.replace("/", ".S")}/.ATTRIBUTES/VARIABLE_VALUE'
  return tf.train.load_checkpoint(str(prefix)).get_tensor(key)


def contents(folder):
  """{relative path: bytes} of all files below a folder."""
  folder = pathlib.Path(folder)
  return {
    str(path.relative_to(folder)): path.read_bytes()
    for path in folder.rglob('*')
    if path.is_file()
  }


def measured(name, folder, *arguments):
  """Runs a bench to its end, which is a good one; the rows of its table."""
  done = run(name, *arguments, f'--output={folder}')
  assert done.code == 0, done.err
  path = pathlib.Path(folder) / f'{name}.csv'
  with open(path, encoding='utf-8') as file:
    return list(csv.DictReader(file))


def metrics(folder):
  """The lines of metrics.jsonl; each must be JSON with a checksum, left out."""
  text = (pathlib.Path(folder) / 'metrics.jsonl').read_text()
  assert text.endswith('\n')
  found = [json.loads(line) for line in text.splitlines()]
  assert all(len(record.pop('crc32')) == 8 for record in found)
  return found


class Event(NamedTuple):
  """One value in TensorBoard's files."""

  step: int
  tag: str
  kind: str  # 'scalars' or 'histograms'
  value: object  # float, or [buckets, (left, right, count)]


def events(folder):
  """All values in a folder's event files, oldest file first."""
  paths = sorted(pathlib.Path(folder).glob('events.out.tfevents.*'))
  return [
    Event(
      event.step,
      value.tag,
      value.metadata.plugin_data.plugin_name,
      tf.make_ndarray(value.tensor),
    )
    for path in paths
    for event in tf.compat.v1.train.summary_iterator(str(path))
    for value in event.summary.value
  ]
