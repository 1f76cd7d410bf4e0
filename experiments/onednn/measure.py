"""Times training steps with and without oneDNN; writes steps.csv beside it.

    python experiments/onednn/measure.py --rounds=3

A step uses plain Keras and TensorFlow: a compiled forward and backward pass and
an update with momentum, without compression. Every figure is the median over
the steps of a separate process, since TensorFlow reads the switch once.
Processes alternate, round by round. `instructions` limits oneDNN to AVX2, so
that a processor with AVX-512 represents one without; TensorFlow's other kernels
do not depend on it. Rounds that the table contains are not run again.
"""

import argparse
import csv
import itertools
import os
import pathlib
import statistics
import subprocess
import sys
import time

TABLE = pathlib.Path(__file__).with_name('steps.csv')
COLUMNS = (
  'processor',
  'instructions',
  'net',
  'batch',
  'onednn',
  'round',
  'milliseconds',
)
# Net, batch, timed steps.
CASES = (
  ('lenet', 64, 30),
  ('alexnet', 2, 8),
  ('alexnet', 32, 3),
  ('resnet_v1_50', 2, 5),
  ('transformer', 4, 10),
)
INSTRUCTIONS = ('AVX2', 'ALL')
WARM_UP = 2


def main() -> None:
  """Times the cases that the table lacks, or one case for `start`."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--rounds', type=int, default=3, help='Timed rounds.')
  parser.add_argument(
    '--step', nargs=3, metavar=('NET', 'BATCH', 'STEPS'), help='Time one case.'
  )
  values = parser.parse_args()
  if values.step:
    net, batch, steps = values.step
    sys.stdout.write(f'{time_step(net, int(batch), int(steps)):.2f}\n')
    return
  done = {tuple(row.values())[:-1] for row in read(TABLE)}
  todo = itertools.product(range(values.rounds), CASES, INSTRUCTIONS, '01')
  for number, (net, batch, steps), instructions, switch in todo:
    key = (processor(), instructions, net, str(batch), switch, str(number))
    if key not in done:
      row = (*key, start((net, batch, steps), instructions, switch))
      append(TABLE, COLUMNS, row)


def start(case, instructions: str, switch: str) -> str:
  """Times a case in a new process; returns milliseconds per step."""
  process = subprocess.run(
    [sys.executable, __file__, '--step', *map(str, case)],
    env=os.environ
    | {'TF_ENABLE_ONEDNN_OPTS': switch, 'ONEDNN_MAX_CPU_ISA': instructions},
    check=True,
    stdout=subprocess.PIPE,
    text=True,
  )
  milliseconds = process.stdout.split()[-1]
  sys.stdout.write(f'{case[:2]} {instructions} {switch}: {milliseconds} ms\n')
  sys.stdout.flush()
  return milliseconds


def time_step(net: str, batch: int, steps: int) -> float:
  """Returns the median milliseconds of a training step on fixed examples."""
  import keras
  import numpy as np
  import tensorflow as tf

  model, images, labels = (
    transformer(batch) if net == 'transformer' else (image_net(net, batch))
  )
  optimizer = keras.optimizers.SGD(1e-3, momentum=0.9)
  optimizer.build(model.trainable_variables)
  loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

  @tf.function
  def step(images, labels):
    with tf.GradientTape() as tape:
      loss = loss_of(labels, model(images, training=True))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply(gradients, model.trainable_variables)
    return loss

  seconds = []
  for _ in range(WARM_UP + steps):
    begin = time.perf_counter()
    loss = step(tf.constant(images), tf.constant(labels)).numpy()
    seconds.append(time.perf_counter() - begin)
  if not np.isfinite(loss):
    raise ValueError(f'{net}: expected a finite loss, received {loss}')
  return 1e3 * statistics.median(seconds[WARM_UP:])


def image_net(net: str, batch: int):
  """Returns a net of `slim` and noise: (model, images, labels)."""
  import numpy as np

  from slim.nets import factory

  size, channels = (28, 1) if net == 'lenet' else (224, 3)
  model = factory.build(net, num_classes=10, image_size=size, channels=channels)
  random = np.random.default_rng(0)
  images = random.normal(size=(batch, size, size, channels))
  return model, images.astype('float32'), random.integers(0, 10, batch)


def transformer(
  batch: int, length: int = 128, width: int = 128, depth: int = 4
):
  """Returns a small decoder and random bytes: (model, bytes, bytes)."""
  import keras
  import numpy as np

  tokens = keras.Input((length,), dtype='int32')
  hidden = keras.layers.Embedding(256, width)(tokens)
  for _ in range(depth):
    normal = keras.layers.LayerNormalization()(hidden)
    attention = keras.layers.MultiHeadAttention(4, width // 4)
    hidden += attention(normal, normal, use_causal_mask=True)
    normal = keras.layers.LayerNormalization()(hidden)
    wide = keras.layers.Dense(4 * width, activation='gelu')(normal)
    hidden += keras.layers.Dense(width)(wide)
  model = keras.Model(tokens, keras.layers.Dense(256)(hidden))
  text = np.random.default_rng(0).integers(0, 256, (batch, length), 'int32')
  return model, text, text


def processor() -> str:
  """Returns vendor, family/model and vectors: 'AuthenticAMD 25/1 avx2'."""
  text = pathlib.Path('/proc/cpuinfo').read_text(encoding='utf-8')
  lines = (line.partition(':') for line in text.split('\n\n')[0].splitlines())
  fields = {name.strip(): value.strip() for name, _, value in lines}
  vectors = 'avx512' if 'avx512f' in fields['flags'].split() else 'avx2'
  family = f'{fields["cpu family"]}/{fields["model"]}'
  return f'{fields["vendor_id"]} {family} {vectors}'


def read(table: pathlib.Path) -> list[dict]:
  """Returns the rows of a table as dicts; [] if the file does not exist."""
  if not table.exists():
    return []
  with table.open(newline='', encoding='utf-8') as file:
    return list(csv.DictReader(file))


def append(table: pathlib.Path, columns: tuple, row: tuple) -> None:
  """Adds a row to a table; creates the file if it does not exist."""
  is_new = not table.exists()
  with table.open('a', newline='', encoding='utf-8') as file:
    writer = csv.writer(file, lineterminator='\n')
    if is_new:
      writer.writerow(columns)
    writer.writerow(row)


if __name__ == '__main__':
  main()
