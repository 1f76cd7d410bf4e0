"""Compares the training pipeline for photographs with bare decoding.

Bare: `tf.io.decode_jpeg` of whole images in memory, a crop of 87.5 % of height
and width, a bilinear resize and batches, on as many threads. The pipeline reads
shards, a database or a folder, shuffles, cuts, decodes, distorts and batches,
as training does. Both run in turns, so that what else the machine does meets
both.
"""

import functools
import pathlib
import tempfile
import time
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from slim import errors
from slim.datasets import catalog
from slim.datasets import factory
from slim.datasets import write_db
from slim.datasets.records import features
from slim.datasets.records import sharding
from slim.preprocessing import factory as preprocessing

HEIGHT, WIDTH = 375, 500  # ImageNet's most frequent size
_QUALITY = 95
SHARDS = 4
# Where photographs are read from: the data set whose reader it is.
STORAGES = {
  'records': 'imagenet',
  'database': 'image_db',
  'folder': 'image_folder',
}
_SPLIT = 'train'
_CROP = 0.875
_WARM_UP = 10  # batches: compiling, and filling buffers


class Load(NamedTuple):
  """How images are asked for.

  Attributes:
    image_size: height and width to deliver, in pixels.
    batch_size: images a batch.
    batches: that a measurement takes.
    threads: images decoded at a time.
  """

  image_size: int
  batch_size: int
  batches: int
  threads: int


class Rates(NamedTuple):
  """What was measured.

  Attributes:
    bare: images per second of bare decoding, two numbers a round and net.
    pipelines: by net and storage, (images per second, ratio to bare decoding)
      a round.
  """

  bare: list[float]
  pipelines: dict[tuple[str, str], list[tuple[float, float]]]


def compare(
  jpegs: list[bytes],
  nets: tuple[str, ...],
  storages: tuple[str, ...],
  load: Load,
  rounds: int,
) -> Rates:
  """Measures the pipelines of nets and bare decoding in turns.

  Args:
    jpegs: of `photographs`.
    nets: whose preprocessing is measured.
    storages: keys of `STORAGES`, where photographs are read from.
    load: how images are asked for.
    rounds: >= 1.

  Raises:
    slim.errors.UnknownNameError: there is no preprocessing for a net, or no
      such storage.
  """
  for storage in storages:
    errors.lookup(STORAGES, storage, 'storage')
  with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    _write(folder, jpegs, storages)
    streams = {
      (net, storage): _pipeline(folder, storage, net, load)
      for net in nets
      for storage in storages
    }
    bare = _bare(jpegs, load)
    measure = functools.partial(_rate, load)
    found = Rates([], {key: [] for key in streams})
    for _ in range(rounds):
      # Before and after, because the machine may slow down in between.
      for key, stream in streams.items():
        before, own, after = measure(bare), measure(stream), measure(bare)
        found.bare.extend((before, after))
        found.pipelines[key].append((own, own * 2 / (before + after)))
  return found


def _rate(load: Load, stream: tf.data.Dataset) -> float:
  """Images per second of some batches."""
  # A new iterator, because one that waits for its turn fills its buffers.
  iterator = iter(stream)
  for _ in range(_WARM_UP):
    next(iterator)
  begin = time.perf_counter()
  for _ in range(load.batches):
    next(iterator)
  return load.batches * load.batch_size / (time.perf_counter() - begin)


def _bare(jpegs: list[bytes], load: Load) -> tf.data.Dataset:
  y, x = (int(side * (1 - _CROP) / 2) for side in (HEIGHT, WIDTH))

  def decode(jpeg: tf.Tensor) -> tf.Tensor:
    pixels = tf.io.decode_jpeg(jpeg, channels=3)
    cut = pixels[y : HEIGHT - y, x : WIDTH - x]
    return tf.image.resize(cut, [load.image_size] * 2)

  stream = tf.data.Dataset.from_tensor_slices(jpegs).repeat()
  return (
    stream.map(decode, num_parallel_calls=load.threads)
    .batch(load.batch_size)
    .prefetch(tf.data.AUTOTUNE)
  )


def _pipeline(
  folder: pathlib.Path, storage: str, net: str, load: Load
) -> tf.data.Dataset:
  delivery = factory.ReadOptions(
    image_size=load.image_size,
    batch_size=load.batch_size,
    training=True,
    preprocessing=preprocessing.name_for('', net),
    threads=load.threads,
  )
  # A database does not say how many there are.
  num_classes = 1 if storage == 'database' else None
  stream, _ = factory.load(
    STORAGES[storage], folder / storage, _SPLIT, delivery, num_classes
  )
  return stream


def photographs(source_dir: str, count: int) -> list[bytes]:
  """JPEGs of `WIDTH` by `HEIGHT` pixels.

  Args:
    source_dir: folder whose JPEG files, also in its folders, are resized; ''
      for made up ones.
    count: how many; those of the folder in turns.

  Raises:
    slim.errors.DataError: the folder has none, or a file is none.
  """
  if not source_dir:
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


def _made_up(random: np.random.Generator) -> tf.Tensor:
  """Coarse and fine noise: about as many bytes as a photograph."""
  coarse = random.uniform(0, 255, [6, 8, 3]).astype(np.float32)
  fine = random.normal(0, 12, [HEIGHT // 2, WIDTH // 2, 3])
  size = [HEIGHT, WIDTH]
  return tf.image.resize(coarse, size) + tf.image.resize(fine, size)


def _jpeg(pixels: tf.Tensor) -> bytes:
  resized = tf.image.resize(pixels, [HEIGHT, WIDTH])
  whole = tf.saturate_cast(tf.round(resized), tf.uint8)
  return tf.io.encode_jpeg(whole, quality=_QUALITY).numpy()


def _write(
  folder: pathlib.Path, jpegs: list[bytes], storages: tuple[str, ...]
) -> None:
  """The photographs in each of `storages`, in a folder of its name."""
  if {'database', 'folder'} & {*storages}:
    images = folder / 'folder' / _SPLIT / 'photographs'
    images.mkdir(parents=True)
    for number, jpeg in enumerate(jpegs):
      (images / f'{number:06d}.jpg').write_bytes(jpeg)
  if 'database' in storages:
    own = catalog.find(STORAGES['folder'])
    stored = write_db.images_of(own, folder / 'folder', _SPLIT)
    (folder / 'database').mkdir()
    write_db.write(stored, folder / 'database' / _SPLIT)
  if 'records' in storages:
    _write_records(folder / 'records', jpegs)


def _write_records(folder: pathlib.Path, jpegs: list[bytes]) -> None:
  folder.mkdir()
  for shard, name in enumerate(sharding.file_names(_SPLIT, SHARDS)):
    with tf.io.TFRecordWriter(str(folder / name)) as writer:
      for jpeg in jpegs[shard::SHARDS]:
        image = {
          features.IMAGE: features.of_bytes(jpeg),
          'image/class/label': features.of_ints(1),
        }
        writer.write(features.serialize(image))
