"""What the torture does to programs, and what must hold afterwards.

A fault takes a `Place` and a NumPy generator, returns the number of single
faults, and raises `Difference` where something is not as without it. These are
of one process; `cluster_faults` and `disk_faults` have the others.
"""

import os
import shutil
import signal
import subprocess
import sys
import time

from slim.datasets.records import manifest
from tests.bin import programs
from tests.torture import references

_PAYLOADS, _ARCHIVES = 200, 100


def stopped_trainers(place, rng):
  """A trainer is stopped or killed a few times, and goes on."""
  train = place.folder / 'train'
  count = int(rng.integers(1, 4))
  for _ in range(count):
    with programs.Program(
      'mnist_train', references.training(place.reference.data, train)
    ) as program:
      time.sleep(rng.uniform(0, place.reference.seconds))
      if rng.random() < 0.3:
        references.send(program, signal.SIGSTOP)
        time.sleep(rng.uniform(0, 1))
        references.send(program, signal.SIGCONT)
      number = signal.SIGTERM if rng.random() < 0.3 else signal.SIGKILL
      references.send(program, number)
      done = program.wait()
    if done.code not in (0, -number, 128 + number):
      raise references.Difference(
        f'a trainer ended with {done.code}: {done.err[-2000:]}'
      )
  references.check_end(place, train)
  return count


def damaged_runs(place, rng):
  """A file of a run is damaged: it goes on, or says why not."""
  train = place.folder / 'train'
  path = _damaged_copy(place.reference.train, train, rng)
  words = [*references.training(place.reference.data, train), '--max_steps=66']
  done = programs.run('mnist_train', *words, limit=references.LIMIT)
  references.check_refusal(done, f'{path.name} was damaged')
  done = programs.run(
    'mnist_eval',
    *references.evaluating(place.reference.data, train, place.folder / 'eval'),
    limit=references.LIMIT,
  )
  references.check_refusal(done, f'{path.name} was damaged')
  return 1


def damaged_data(place, rng):
  """A file of the data set is damaged; training says so, or nothing changes."""
  data = place.folder / 'data'
  path = _damaged_copy(place.reference.data, data, rng)
  train = place.folder / 'train'
  done = programs.run(
    'mnist_train', *references.training(data, train), limit=references.LIMIT
  )
  references.check_refusal(done, f'{path.name} was damaged')
  if done.code == 0:
    # What says of which examples a run was is not there without shards.json.
    learned = {
      name: value
      for name, value in place.reference.tensors.items()
      if not name.startswith('layout/')
    }
    references.check_equal(train, learned)
  return 1


def damaged_sources(place, rng):
  """A file of MNIST is damaged: a converter says so, or writes the same."""
  idx = place.folder / 'idx'
  path = _damaged_copy(place.reference.idx, idx, rng)
  made = place.folder / 'made'
  done = references.convert(idx, made)
  references.check_refusal(done, f'{path.name} was damaged')
  if done.code and (made / manifest.FILE_NAME).exists():
    raise references.Difference('a converter that failed left a whole data set')
  return 1


def killed_converters(place, rng):
  """A converter is killed a few times, and goes on to the same shards."""
  made = place.folder / 'made'
  count = int(rng.integers(1, 4))
  for _ in range(count):
    with programs.Program(
      'slim.download_and_convert_data',
      references.converting(place.reference.idx, made),
    ) as program:
      time.sleep(rng.uniform(0, 0.5))
      references.send(program, signal.SIGKILL)
      program.wait()
  references.check_converted(place, made)
  return count


def killed_evaluators(place, rng):
  """An evaluator is killed, and the next gives the same score."""
  folder = place.folder / 'eval'
  words = references.evaluating(
    place.reference.data, place.reference.train, folder
  )
  with programs.Program('mnist_eval', words) as program:
    time.sleep(rng.uniform(0, 3))
    references.send(program, signal.SIGKILL)
    program.wait()
  references.check_score(place, words)
  return 1


def hostile_payloads(place, rng):
  """Kernels and their twins agree on words that no encoder made."""
  return _tried('payloads', _PAYLOADS, place, rng)


def hostile_archives(place, rng):
  """Readers refuse files that want memory, time, calls or other places."""
  return _tried('archives', _ARCHIVES, place, rng)


FAULTS = (
  stopped_trainers,
  damaged_runs,
  damaged_data,
  damaged_sources,
  killed_converters,
  killed_evaluators,
  hostile_payloads,
  hostile_archives,
)


def _tried(module, count, place, rng):
  """Runs a program of many hostile inputs; their number."""
  seed = int(rng.integers(2**31))
  done = subprocess.run(
    [sys.executable, '-m', f'tests.torture.{module}', str(seed), str(count)],
    cwd=place.folder,
    env=os.environ | programs.QUIET,
    capture_output=True,
    text=True,
    check=False,
    timeout=10 * references.LIMIT,
  )
  if done.returncode:
    raise references.Difference(
      f'{module} of seed {seed}: {done.returncode}, {done.stderr[-2000:]}'
    )
  return count


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
