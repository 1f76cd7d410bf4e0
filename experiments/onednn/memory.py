"""Counts page faults of decoding and of `fit` by allocator; writes memory.csv.

    python experiments/onednn/memory.py --rounds=3
    python experiments/onednn/memory.py --case=towers --minutes=60

TensorFlow's allocator for CPUs returns every freed tensor to the C library,
which returns large ones to the system, so each new tensor costs a page fault
for every 4 KB. With oneDNN TensorFlow uses another allocator, which reuses the
memory. Each figure is of a separate process; processes alternate.

The second command repeats one case, and writes the memory of its process to
hours.csv every five minutes.
"""

import argparse
import itertools
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import time

import measure

TABLE = pathlib.Path(__file__).with_name('memory.csv')
COLUMNS = (
  'processor',
  'setting',
  'case',
  'round',
  'milliseconds',
  'faults',
  'resident_mb',
  'largest_mb',
)
HOURS = pathlib.Path(__file__).with_name('hours.csv')
HOURS_COLUMNS = (
  'processor',
  'onednn',
  'case',
  'minutes',
  'calls',
  'resident_mb',
  'largest_mb',
)
_OFF = {'TF_ENABLE_ONEDNN_OPTS': '0'}
SETTINGS = {
  'oneDNN off': _OFF,
  'oneDNN on': {'TF_ENABLE_ONEDNN_OPTS': '1'},
  'off, TF_CPU_ALLOCATOR_USE_BFC': _OFF | {'TF_CPU_ALLOCATOR_USE_BFC': '1'},
  'off, MALLOC_MMAP_THRESHOLD_': _OFF
  | {
    'MALLOC_MMAP_THRESHOLD_': '4294967296',
    'MALLOC_TRIM_THRESHOLD_': '17179869184',
  },
  'off, huge pages': _OFF | {'GLIBC_TUNABLES': 'glibc.malloc.hugetlb=1'},
}
CASES = ('copy', 'decode', 'fit')
MINUTES_BETWEEN_ROWS = 5
_ELEMENTS = 16_000_000
_CALLS = 15


def main() -> None:
  """Counts the cases that the table lacks, or one case in this process."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--rounds', type=int, default=3, help='Timed rounds.')
  parser.add_argument('--case', choices=list(CALLS), help='Only this case.')
  parser.add_argument(
    '--minutes', type=float, default=0, help='Writes hours.csv.'
  )
  values = parser.parse_args()
  if values.minutes:
    watch(values.case or 'fit', values.minutes)
    return
  if values.case:
    sys.stdout.write(' '.join(map(str, count(values.case))) + '\n')
    return
  done = {tuple(row.values())[:4] for row in measure.read(TABLE)}
  todo = itertools.product(range(values.rounds), CASES, SETTINGS)
  for number, case, setting in todo:
    key = (measure.processor(), setting, case, str(number))
    if key not in done:
      measure.append(TABLE, COLUMNS, (*key, *start(case, SETTINGS[setting])))


def start(case: str, environment: dict[str, str]) -> list[str]:
  """Returns the figures of a case in a process with these variables."""
  process = subprocess.run(
    [sys.executable, __file__, '--case', case],
    env=os.environ | environment,
    check=True,
    stdout=subprocess.PIPE,
    text=True,
  )
  return process.stdout.splitlines()[-1].split()


def count(case: str) -> tuple[float, float, int, int]:
  """Returns milliseconds and page faults per call, and MB as `memory`."""
  call = CALLS[case]()
  for _ in range(3):
    call()
  seconds, before = [], _faults()
  for _ in range(_CALLS):
    begin = time.perf_counter()
    call()
    seconds.append(time.perf_counter() - begin)
  faults = (_faults() - before) / _CALLS
  milliseconds = round(1e3 * statistics.median(seconds), 2)
  return milliseconds, round(faults, 1), *memory()


def memory() -> tuple[int, int]:
  """Returns the current and the largest resident megabytes of this process."""
  status = pathlib.Path('/proc/self/status').read_text(encoding='utf-8')
  resident, largest = (
    # The kernel's kB are 1024 bytes.
    int(status.partition(name)[2].split()[0]) * 1024 // 10**6
    for name in ('VmRSS:', 'VmHWM:')
  )
  return resident, largest


def watch(case: str, minutes: float) -> None:
  """Repeats a case; adds a row to hours.csv every five minutes."""
  call = CALLS[case]()
  call()
  switch = os.environ.get('TF_ENABLE_ONEDNN_OPTS', 'default')
  begin = time.monotonic()
  calls = row_at = 0
  while row_at <= minutes:
    passed = (time.monotonic() - begin) / 60
    if passed >= row_at:
      row = (switch, case, round(passed, 1), calls, *memory())
      measure.append(HOURS, HOURS_COLUMNS, (measure.processor(), *row))
      row_at += MINUTES_BETWEEN_ROWS
    call()
    calls += 1


def copy_call():
  """Copies 64 MB, for comparison."""
  import tensorflow as tf

  gradient = tf.random.stateless_normal([_ELEMENTS], [0, 1])
  return tf.function(
    lambda: tf.raw_ops.DeepCopy(x=gradient)
  ).get_concrete_function()


def decode_call():
  """Decodes ternary codes to 64 MB with the native kernels."""
  import tensorflow as tf

  from terngrad.codec.methods import registry
  from terngrad.codec.stages import random_bits

  codec = registry.parse('ternary').on_kernels()
  gradient = tf.random.stateless_normal([_ELEMENTS], [0, 1])
  probe = codec.probe([gradient])
  words = codec.encode([gradient], probe, probe, random_bits.seed_key(1))

  @tf.function
  def decode():
    return codec.decode_sum([words[tf.newaxis]], probe, [(_ELEMENTS,)])[0]

  return decode.get_concrete_function()


def fit_call():
  """Runs a ternary step of `fit`: 38 million parameters, batch size 8."""
  import keras
  import numpy as np

  import terngrad.keras

  keras.utils.set_random_seed(0)
  layers = [keras.layers.Dense(4096, 'relu') for _ in range(2)]
  model = keras.Sequential(
    [keras.Input((5120,)), *layers, keras.layers.Dense(10)]
  )
  loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
  optimizer = keras.optimizers.SGD(1e-3, momentum=0.9)
  model.compile(terngrad.keras.CompressedOptimizer(optimizer, 'ternary'), loss)
  examples = np.random.default_rng(0).normal(size=(8, 5120)).astype('float32')
  labels = np.arange(8) % 10
  return lambda: model.train_on_batch(examples, labels)


def towers_call():
  """Runs a ternary step of `terngrad.Trainer`: AlexNet, two workers of 2."""
  import numpy as np

  import terngrad

  model, images, labels = measure.image_net('alexnet', 4)
  trainer = terngrad.Trainer(model, 'ternary', num_workers=2)
  images = images.reshape(2, 2, *images.shape[1:])
  labels = labels.reshape(2, 2).astype(np.int32)
  return lambda: trainer.step(images, labels, learning_rate=1e-3)


def _faults() -> int:
  return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


CALLS = {
  'copy': copy_call,
  'decode': decode_call,
  'fit': fit_call,
  'towers': towers_call,
}


if __name__ == '__main__':
  main()
