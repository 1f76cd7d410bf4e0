"""Disks that are full: a program says so, and goes on once there is room."""

import os
import resource
import time

from slim.datasets.records import manifest
from tests.bin import programs
from tests.slim import small_disk
from tests.torture import references

# KiB that hold every round.
_ROOM = 1 << 20
# Bytes.
_WORDS = 2**14


def full_disks_of_trainers(place, rng):
  """The disk of a run is full at some step."""
  most = _kilobytes(place.reference.train)
  with _disk(place, rng, most) as disk:
    words = references.training(place.reference.data, disk / 'train')
    done = programs.run('mnist_train', *words)
    _check_said(done, disk)
    small_disk.grow(disk, _ROOM)
    references.check_end(place, disk / 'train')
  return 1


def full_disks_of_converters(place, rng):
  """The disk of a data set is full at some record."""
  with _disk(place, rng, _kilobytes(place.reference.data)) as disk:
    made = disk / 'made'
    done = references.convert(place.reference.idx, made)
    _check_said(done, disk)
    if done.code and (made / manifest.FILE_NAME).exists():
      raise references.Difference('a full disk left a whole data set')
    small_disk.grow(disk, _ROOM)
    references.check_converted(place, made)
  return 1


def full_disks_of_evaluators(place, rng):
  """The disk of an evaluation is full."""
  with _disk(place, rng, 64) as disk:
    words = references.evaluating(
      place.reference.data, place.reference.train, disk / 'eval'
    )
    done = programs.run('mnist_eval', *words)
    _check_said(done, disk)
    small_disk.grow(disk, _ROOM)
    references.check_score(place, words)
  return 1


def limited_files_of_trainers(place, rng):
  """From some moment on no file may be longer than so many bytes."""
  train = place.folder / 'train'
  words = references.training(place.reference.data, train)
  largest = max(p.stat().st_size for p in place.reference.train.iterdir())
  # What it says goes to a file as well, which has to have room for it.
  limit = max(_WORDS, int(largest ** rng.uniform(0, 1.05)))
  with programs.Program('mnist_train', words) as program:
    time.sleep(rng.uniform(0, place.reference.seconds))
    program.limit(resource.RLIMIT_FSIZE, limit)
    done = program.wait()
  references.check_refusal(done, f'no file could have {limit} bytes')
  references.check_end(place, train)
  return 1


FAULTS = (limited_files_of_trainers,)
if os.geteuid() == 0:
  FAULTS += (
    full_disks_of_trainers,
    full_disks_of_converters,
    full_disks_of_evaluators,
  )


def _disk(place, rng, most):
  """A disk of at least a page, and at most some more than `most` KiB."""
  size = max(4, int(rng.uniform(0, 1.2) * most))
  return small_disk.mounted(place.folder / 'disk', size)


def _kilobytes(folder):
  files = [p for p in folder.rglob('*') if p.is_file()]
  return sum(path.stat().st_size for path in files) // 1024 + 4 * len(files)


def _check_said(done, disk):
  """Fails unless a program was done or said what is full."""
  references.check_refusal(done, f'{disk} was full')
  if done.code and 'space' not in done.err:
    raise references.Difference(f'of a full disk: {done.err[-2000:]}')
