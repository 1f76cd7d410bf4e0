"""Compares the training pipeline for photographs with bare decoding.

Bare: `tf.io.decode_jpeg` of whole images in memory, a crop of 87.5 % of height
and width, a bilinear resize and batches, on as many threads. The pipeline reads
shards, shuffles, cuts, decodes, distorts and batches, as training does. Both
run in turns, so that what else the machine does meets both.

Usage, with photographs of one's own:

  python -m slim.measure_pipeline --source_dir /data/photos
"""

import functools
import os
import pathlib
import statistics
import sys
import tempfile
import time

if __package__ in (None, ''):
  # Started by its path: Python then searches this folder and not the one above.
  sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])

os.environ['TF_CPP_MIN_LOG_LEVEL'] = os.getenv('TF_CPP_MIN_LOG_LEVEL', '3')

import numpy as np
import tensorflow as tf
from absl import app
from absl import flags

from slim import errors
from slim.datasets import factory

_HEIGHT, _WIDTH = 375, 500  # ImageNet's most frequent size
_QUALITY = 95
_SHARDS = 4
_CROP = 0.875
_WARM_UP = 10  # batches: compiling, and filling buffers


def define_flags() -> None:
  """Defines the program's flags."""
  flags.DEFINE_string(
    'source_dir',
    None,
    'Folder whose JPEG files, also in its folders, are resized to '
    f'{_WIDTH}x{_HEIGHT}; made up ones without it.',
  )
  flags.DEFINE_integer(
    'images', 256, 'Photographs to make records of.', lower_bound=_SHARDS
  )
  flags.DEFINE_list(
    'nets',
    ['alexnet', 'googlenet', 'vgg_16'],
    'Nets whose preprocessing is measured.',
  )
  flags.DEFINE_integer(
    'image_size', 224, 'Height and width to deliver.', lower_bound=1
  )
  flags.DEFINE_integer('batch_size', 32, 'Images a batch.', lower_bound=1)
  flags.DEFINE_integer('batches', 40, 'Batches a round of each.', lower_bound=1)
  flags.DEFINE_integer('rounds', 5, 'Rounds.', lower_bound=1)
  flags.DEFINE_integer(
    'threads', 0, 'Images decoded at a time; 0: one a core.', lower_bound=0
  )


def main(argv: list[str]) -> int:
  """Prints images per second of both, and the pipeline's share.

  Args:
    argv: the program's name, and nothing else.

  Returns:
    The exit code: 0, 1 for data that cannot be used, 2 for bad arguments.
  """
  if argv[1:]:
    print(
      f'measure_pipeline: expected only flags; received {" ".join(argv[1:])}. '
      'Write --name value.',
      file=sys.stderr,
    )
    return 2
  options = flags.FLAGS
  tf.config.set_visible_devices([], 'GPU')
  try:
    jpegs = _photographs(options.source_dir, options.images)
    with tempfile.TemporaryDirectory() as folder:
      _write_records(pathlib.Path(folder), jpegs)
      _measure(options, jpegs, folder)
  except errors.DataError as error:
    print(f'measure_pipeline: {error}', file=sys.stderr)
    return 1
  return 0


def _measure(options, jpegs, folder):
  threads = options.threads or os.cpu_count() or 1
  pipelines = {
    net: _pipeline(folder, net, options, threads) for net in options.nets
  }
  bare = _bare(jpegs, options, threads)
  measure = functools.partial(_rate, options.batches, options.batch_size)
  rates = {net: [] for net in pipelines}
  bare_rates = []
  for _ in range(options.rounds):
    # Before and after, because the machine may slow down in between.
    for net, stream in pipelines.items():
      before, own, after = measure(bare), measure(stream), measure(bare)
      bare_rates += [before, after]
      rates[net].append((own, own * 2 / (before + after)))
  size = statistics.mean(map(len, jpegs)) / 1000
  print(
    f'{_WIDTH}x{_HEIGHT} JPEGs of {size:.0f} kB to {options.image_size} '
    f'pixels, {threads} threads, batches of {options.batch_size}'
  )
  print(f'bare: {statistics.median(bare_rates):.0f} images/s')
  for net, pairs in rates.items():
    own, ratios = zip(*pairs, strict=True)
    print(
      f'{net}: {statistics.median(own):.0f} images/s, ratio to bare '
      f'{statistics.median(ratios):.2f} ({min(ratios):.2f} to '
      f'{max(ratios):.2f})'
    )


def _rate(batches, batch_size, stream):
  """Images per second of some batches."""
  # A new iterator, because one that waits for its turn fills its buffers.
  iterator = iter(stream)
  for _ in range(_WARM_UP):
    next(iterator)
  begin = time.perf_counter()
  for _ in range(batches):
    next(iterator)
  return batches * batch_size / (time.perf_counter() - begin)


def _bare(jpegs, options, threads):
  y, x = (int(side * (1 - _CROP) / 2) for side in (_HEIGHT, _WIDTH))

  def decode(jpeg):
    pixels = tf.io.decode_jpeg(jpeg, channels=3)
    cut = pixels[y : _HEIGHT - y, x : _WIDTH - x]
    return tf.image.resize(cut, [options.image_size] * 2)

  stream = tf.data.Dataset.from_tensor_slices(jpegs).repeat()
  return (
    stream.map(decode, num_parallel_calls=threads)
    .batch(options.batch_size)
    .prefetch(tf.data.AUTOTUNE)
  )


def _pipeline(folder, net, options, threads):
  delivery = factory.Delivery(
    image_size=options.image_size,
    batch_size=options.batch_size,
    training=True,
    net=net,
    threads=threads,
  )
  stream, _ = factory.load('imagenet', folder, 'train', delivery)
  return stream


def _photographs(source_dir, count):
  """`count` JPEGs of one size; the source's in turns."""
  if source_dir is None:
    random = np.random.default_rng(0)
    return [_jpeg(_made_up(random)) for _ in range(count)]
  paths = sorted(
    path
    for path in pathlib.Path(source_dir).rglob('*')
    if path.suffix.lower() in ('.jpg', '.jpeg') and path.is_file()
  )[:count]
  if not paths:
    raise errors.DataError(
      f'{source_dir}: expected JPEG files; received none. Choose another '
      '--source_dir.'
    )
  try:
    jpegs = [
      _jpeg(tf.io.decode_jpeg(tf.io.read_file(str(path)), channels=3))
      for path in paths
    ]
  except tf.errors.OpError as error:
    raise errors.DataError(
      f'{source_dir}: expected JPEG files; received "{error.message}". Move '
      'what is none to another folder.'
    ) from error
  return [jpegs[i % len(jpegs)] for i in range(count)]


def _made_up(random):
  """Coarse and fine noise: about as many bytes as a photograph."""
  coarse = random.uniform(0, 255, [6, 8, 3]).astype(np.float32)
  fine = random.normal(0, 12, [_HEIGHT // 2, _WIDTH // 2, 3])
  size = [_HEIGHT, _WIDTH]
  return tf.image.resize(coarse, size) + tf.image.resize(fine, size)


def _jpeg(pixels):
  resized = tf.image.resize(pixels, [_HEIGHT, _WIDTH])
  whole = tf.saturate_cast(tf.round(resized), tf.uint8)
  return tf.io.encode_jpeg(whole, quality=_QUALITY).numpy()


def _write_records(folder, jpegs):
  for shard in range(_SHARDS):
    path = folder / f'train-{shard:05d}-of-{_SHARDS:05d}'
    with tf.io.TFRecordWriter(str(path)) as writer:
      for jpeg in jpegs[shard::_SHARDS]:
        writer.write(_example(jpeg))


def _example(jpeg):
  feature = {
    'image/encoded': tf.train.Feature(
      bytes_list=tf.train.BytesList(value=[jpeg])
    ),
    'image/class/label': tf.train.Feature(
      int64_list=tf.train.Int64List(value=[1])
    ),
  }
  return tf.train.Example(
    features=tf.train.Features(feature=feature)
  ).SerializeToString()


def run() -> None:
  """Runs the program."""
  define_flags()
  app.run(main)


if __name__ == '__main__':
  run()
