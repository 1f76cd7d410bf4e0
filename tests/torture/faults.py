"""What the torture does to programs, and what must hold afterwards.

A fault takes a `Place` and a NumPy generator, returns the number of single
faults, and raises `Difference` where something is not as without it.
"""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
from typing import NamedTuple

from slim.datasets.records import manifest
from slim.datasets.small_images import convert_mnist
from slim.datasets.small_images import mnist_source
from tests.bin import programs
from tests.slim import mnist_files

_PAYLOADS = 200
# Seconds that a program may take for damaged input.
_LIMIT = 120


class Difference(Exception):
  """Something is not as it is without a fault."""


class Reference(NamedTuple):
  """What nothing disturbed.

  Attributes:
    idx: folder of MNIST's files.
    data: of the converted data set.
    train: of a training run.
    seconds: that it took.
    tensors: of its last checkpoint, see `programs.tensors`.
    score: what an evaluation of it prints.
  """

  idx: pathlib.Path
  data: pathlib.Path
  train: pathlib.Path
  seconds: float
  tensors: dict
  score: list


class Place(NamedTuple):
  """Where a round is.

  Attributes:
    folder: its own.
    reference: `Reference`.
  """

  folder: pathlib.Path
  reference: Reference


def make_reference(folder):
  """Runs everything once."""
  idx, data, train = folder / 'idx', folder / 'data', folder / 'train'
  mnist_files.write_idx(idx, 90, 37)
  convert_mnist.convert(
    str(data),
    source='idx',
    request=mnist_source.Request(str(idx), verify_checksums=False),
  )
  before = time.monotonic()
  done = programs.run('mnist_train', *training(data, train))
  seconds = time.monotonic() - before
  assert done.code == 0, done.err
  score = programs.run('mnist_eval', *evaluating(data, train, folder / 'eval'))
  assert score.code == 0, score.err
  last = _last(train)
  return Reference(
    idx, data, train, seconds, programs.tensors(last), _scores(score.out)
  )


def training(data, train):
  """Words of a training of ternary gradients on two devices."""
  return programs.whole_run_arguments(data, train)


def evaluating(data, train, folder):
  """Words of an evaluation of it."""
  return [
    *programs.as_flags(data_dir=data, checkpoint_dir=train, eval_dir=folder),
    '--batch_size=37',
    '--run_once',
  ]


def stopped_trainers(place, rng):
  """A trainer is stopped or killed a few times, and goes on."""
  train = place.folder / 'train'
  count = int(rng.integers(1, 4))
  for _ in range(count):
    with programs.Program(
      'mnist_train', training(place.reference.data, train)
    ) as program:
      time.sleep(rng.uniform(0, place.reference.seconds))
      if rng.random() < 0.3:
        _send(program, signal.SIGSTOP)
        time.sleep(rng.uniform(0, 1))
        _send(program, signal.SIGCONT)
      number = signal.SIGTERM if rng.random() < 0.3 else signal.SIGKILL
      _send(program, number)
      done = program.wait()
    if done.code not in (0, -number, 128 + number):
      raise Difference(f'a trainer ended with {done.code}: {done.err[-2000:]}')
  _check_end(place, train)
  return count


def damaged_runs(place, rng):
  """A file of a run is damaged: it goes on, or says why not."""
  train = place.folder / 'train'
  path = _damaged_copy(place.reference.train, train, rng)
  words = [*training(place.reference.data, train), '--max_steps=66']
  done = programs.run('mnist_train', *words, limit=_LIMIT)
  _check_refusal(done, f'{path.name} was damaged')
  done = programs.run(
    'mnist_eval',
    *evaluating(place.reference.data, train, place.folder / 'eval'),
    limit=_LIMIT,
  )
  _check_refusal(done, f'{path.name} was damaged')
  return 1


def damaged_data(place, rng):
  """A file of the data set is damaged; training says so, or nothing changes."""
  data = place.folder / 'data'
  path = _damaged_copy(place.reference.data, data, rng)
  train = place.folder / 'train'
  done = programs.run('mnist_train', *training(data, train), limit=_LIMIT)
  _check_refusal(done, f'{path.name} was damaged')
  if done.code == 0:
    _check_equal(place, train)
  return 1


def damaged_sources(place, rng):
  """A file of MNIST is damaged: a converter says so, or writes the same."""
  idx = place.folder / 'idx'
  path = _damaged_copy(place.reference.idx, idx, rng)
  made = place.folder / 'made'
  done = _convert(idx, made)
  _check_refusal(done, f'{path.name} was damaged')
  if done.code and (made / manifest.FILE_NAME).exists():
    raise Difference('a converter that failed left a whole data set')
  return 1


def killed_converters(place, rng):
  """A converter is killed a few times, and goes on to the same shards."""
  made = place.folder / 'made'
  count = int(rng.integers(1, 4))
  for _ in range(count):
    with programs.Program(
      'slim.download_and_convert_data', _converting(place.reference.idx, made)
    ) as program:
      time.sleep(rng.uniform(0, 0.5))
      _send(program, signal.SIGKILL)
      program.wait()
  done = _convert(place.reference.idx, made)
  if done.code:
    raise Difference(f'a converter went on and failed: {done.err[-2000:]}')
  ours, others = (
    {s.file: s.sha256 for e in found.splits.values() for s in e.shards}
    for found in map(manifest.read, (made, place.reference.data))
  )
  if ours != others:
    raise Difference(f'shards {ours} where undisturbed ones are {others}')
  return count


def killed_evaluators(place, rng):
  """An evaluator is killed, and the next gives the same score."""
  folder = place.folder / 'eval'
  words = evaluating(place.reference.data, place.reference.train, folder)
  with programs.Program('mnist_eval', words) as program:
    time.sleep(rng.uniform(0, 3))
    _send(program, signal.SIGKILL)
    program.wait()
  done = programs.run('mnist_eval', *words)
  if done.code or _scores(done.out) != place.reference.score:
    raise Difference(f'another score: {done.out[-500:]} {done.err[-2000:]}')
  return 1


def hostile_payloads(place, rng):
  """Kernels and their twins agree on words that no encoder made."""
  seed = int(rng.integers(2**31))
  done = subprocess.run(
    [sys.executable, '-m', 'tests.torture.payloads', str(seed), str(_PAYLOADS)],
    cwd=place.folder,
    env=os.environ | programs.QUIET,
    capture_output=True,
    text=True,
    check=False,
    timeout=10 * _LIMIT,
  )
  if done.returncode:
    raise Difference(
      f'payloads of seed {seed}: {done.returncode}, {done.stderr[-2000:]}'
    )
  return _PAYLOADS


FAULTS = (
  stopped_trainers,
  damaged_runs,
  damaged_data,
  damaged_sources,
  killed_converters,
  killed_evaluators,
  hostile_payloads,
)


def _damaged_copy(source, target, rng):
  """Copies a folder and damages one of its files; returns its path."""
  shutil.copytree(source, target)
  files = [path for path in sorted(target.rglob('*')) if path.is_file()]
  path = files[rng.integers(len(files))]
  damage(path, rng)
  return path


def damage(path, rng):
  """Changes a file: some bits, its length, all of it, or that it is there."""
  content = bytearray(path.read_bytes())
  kind = rng.integers(5)
  if kind == 0 and content:
    for _ in range(int(rng.integers(1, 9))):
      content[rng.integers(len(content))] ^= 1 << int(rng.integers(8))
  elif kind == 1:
    del content[int(rng.integers(len(content) + 1)) :]
  elif kind == 2:
    content += rng.bytes(int(rng.integers(1, 1000)))
  elif kind == 3:
    content = bytearray(rng.bytes(len(content)))
  else:
    path.unlink()
    return
  path.write_bytes(content)


def _send(program, number):
  """A signal, where there still is a process."""
  with contextlib.suppress(ProcessLookupError):
    program.send(number)


def _converting(idx, made):
  return [
    '--dataset_name=mnist',
    f'--dataset_dir={made}',
    f'--source_dir={idx}',
    '--noverify_checksums',
  ]


def _convert(idx, made):
  words = _converting(idx, made)
  return programs.run('slim.download_and_convert_data', *words, limit=_LIMIT)


def _last(train):
  step = max(programs.checkpoint_steps(train))
  return train / f'model.ckpt-{step}'


def _scores(text):
  """The last line of an evaluation, without what depends on the time."""
  (*_, last) = [line for line in text.splitlines() if 'precision' in line]
  return [word for word in last.split() if word.replace('.', '').isdigit()]


def _check_end(place, train):
  """Runs to the end; fails unless that is the undisturbed one."""
  done = programs.run('mnist_train', *training(place.reference.data, train))
  if done.code:
    raise Difference(f'a run went on and failed: {done.err[-2000:]}')
  _check_equal(place, train)


def _check_equal(place, train):
  found = programs.tensors(_last(train))
  for name, value in place.reference.tensors.items():
    if found.get(name) != value:
      raise Difference(f'{name} is not that of the undisturbed run')


def _check_refusal(done, what):
  """Fails unless a program did its work or said in one line why not."""
  said = [line for line in done.err.splitlines() if 'xpected ' in line]
  if 'Traceback' in done.err or done.code not in (0, 1, 2):
    raise Difference(f'{what}: {done.code}, {done.err[-3000:]}')
  if done.code and not said:
    raise Difference(f'{what}: {done.code} without a word: {done.err[-2000:]}')
