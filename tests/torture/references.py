"""What nothing disturbed, and what must hold of a run that something did."""

import contextlib
import pathlib
import time
from typing import NamedTuple

from slim.datasets.records import manifest
from slim.datasets.small_images import convert_mnist
from slim.datasets.small_images import mnist_source
from tests.bin import programs
from tests.slim import mnist_files

# Seconds that a program may take for damaged input.
LIMIT = 120


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
    request=mnist_source.SourceOptions(str(idx), verify_checksums=False),
  )
  before = time.monotonic()
  done = programs.run('mnist_train', *training(data, train))
  seconds = time.monotonic() - before
  assert done.code == 0, done.err
  score = programs.run('mnist_eval', *evaluating(data, train, folder / 'eval'))
  assert score.code == 0, score.err
  tensors = programs.tensors(last(train))
  return Reference(idx, data, train, seconds, tensors, scores(score.out))


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


def converting(idx, made):
  """Words of a conversion of MNIST's files."""
  return [
    '--dataset_name=mnist',
    f'--dataset_dir={made}',
    f'--source_dir={idx}',
    '--noverify_checksums',
  ]


def convert(idx, made):
  """Converts them; a `programs.Finished`."""
  words = converting(idx, made)
  return programs.run('slim.download_and_convert_data', *words, limit=LIMIT)


def last(train):
  """The path of a run's last checkpoint."""
  step = max(programs.checkpoint_steps(train))
  return train / f'model.ckpt-{step}'


def scores(text):
  """The last line of an evaluation, without what depends on the time."""
  (*_, last) = [line for line in text.splitlines() if 'precision' in line]
  return [word for word in last.split() if word.replace('.', '').isdigit()]


def check_end(place, train):
  """Runs to the end; fails unless that is the undisturbed one."""
  done = programs.run('mnist_train', *training(place.reference.data, train))
  if done.code:
    raise Difference(f'a run went on and failed: {done.err[-2000:]}')
  check_equal(train, place.reference.tensors)


def check_equal(train, tensors):
  """Fails unless a run ended at these bits."""
  found = programs.tensors(last(train))
  for name, value in tensors.items():
    if found.get(name) != value:
      raise Difference(f'{name} is not that of the undisturbed run')


def check_converted(place, made):
  """Converts to the end; fails unless shards are the undisturbed ones."""
  done = convert(place.reference.idx, made)
  if done.code:
    raise Difference(f'a converter went on and failed: {done.err[-2000:]}')
  ours, others = (
    {s.file: s.sha256 for e in found.splits.values() for s in e.shards}
    for found in map(manifest.read, (made, place.reference.data))
  )
  if ours != others:
    raise Difference(f'shards {ours} where undisturbed ones are {others}')


def check_score(place, words):
  """Evaluates; fails unless the score is the undisturbed one."""
  done = programs.run('mnist_eval', *words)
  if done.code or scores(done.out) != place.reference.score:
    raise Difference(f'another score: {done.out[-500:]} {done.err[-2000:]}')


def check_refusal(done, what):
  """Fails unless a program did its work or said in one line why not."""
  said = [line for line in done.err.splitlines() if 'xpected ' in line]
  if 'Traceback' in done.err or done.code not in (0, 1, 2):
    raise Difference(f'{what}: {done.code}, {done.err[-3000:]}')
  if done.code and not said:
    raise Difference(f'{what}: {done.code} without a word: {done.err[-2000:]}')


def send(program, number):
  """Sends a signal, where there still is a process."""
  with contextlib.suppress(ProcessLookupError):
    program.send(number)
