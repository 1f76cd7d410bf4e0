"""Compares the training pipeline for photographs with plain decoding.

Plain decoding applies `tf.io.decode_jpeg` to whole images in memory, crops
87.5 % of height and width, resizes bilinearly and batches, with as many
threads. The pipeline does what training does: it reads shards, a database or a
directory, shuffles, crops, decodes, distorts and batches. The two alternate, so
other load on the machine affects both.
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
# Storages of photographs, and the data set whose reader each uses.
STORAGES = {
  'records': 'imagenet',
  'database': 'image_db',
  'folder': 'image_folder',
}
_SPLIT = 'train'
_CROP = 0.875
_WARM_UP = 10  # batches, to compile and to fill buffers


class Load(NamedTuple):
  """Size of a measurement's batches.

  Attributes:
    image_size: height and width of the delivered images, in pixels.
    batch_size: images per batch.
    batches: batches per measurement.
    threads: number of images decoded in parallel.
  """

  image_size: int
  batch_size: int
  batches: int
  threads: int


class Rates(NamedTuple):
  """Measured rates.

  Attributes:
    plain_decoding: images per second of decoding alone, two values for each
      round, net and storage.
    pipelines: by (net, storage), one pair (images per second, ratio to plain
      decoding) per round.
  """

  plain_decoding: list[float]
  pipelines: dict[tuple[str, str], list[tuple[float, float]]]


def compare(
  jpegs: list[bytes],
  nets: tuple[str, ...],
  storages: tuple[str, ...],
  load: Load,
  rounds: int,
) -> Rates:
  """Measures the nets' pipelines and plain decoding in alternation.

  Args:
    jpegs: from `photographs`.
    nets: nets whose preprocessing is measured.
    storages: keys of `STORAGES` to read photographs from.
    load: size of the batches.
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
    bare = _plain_decoding(jpegs, load)
    measure = functools.partial(_images_per_second, load)
    found = Rates([], {key: [] for key in streams})
    for _ in range(rounds):
      # Plain decoding runs before and after, in case the machine slows down.
      for key, stream in streams.items():
        before, rate, after = measure(bare), measure(stream), measure(bare)
        found.plain_decoding.extend((before, after))
        found.pipelines[key].append((rate, rate * 2 / (before + after)))
  return found


def _images_per_second(load: Load, stream: tf.data.Dataset) -> float:
  """Measures the images per second of `load.batches` batches."""
  # A new iterator: one created earlier would fill its buffers while waiting.
  iterator = iter(stream)
  for _ in range(_WARM_UP):
    next(iterator)
  begin = time.perf_counter()
  for _ in range(load.batches):
    next(iterator)
  return load.batches * load.batch_size / (time.perf_counter() - begin)


def _plain_decoding(jpegs: list[bytes], load: Load) -> tf.data.Dataset:
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
  options = factory.ReadOptions(
    image_size=load.image_size,
    batch_size=load.batch_size,
    training=True,
    preprocessing=preprocessing.default_name('', net),
    threads=load.threads,
  )
  # A database does not store the number of classes.
  num_classes = 1 if storage == 'database' else None
  stream, _ = factory.load(
    STORAGES[storage], folder / storage, _SPLIT, options, num_classes
  )
  return stream


def photographs(source_dir: str, count: int) -> list[bytes]:
  """Returns JPEGs of `WIDTH` by `HEIGHT` pixels.

  Args:
    source_dir: directory whose JPEG files, including those in subdirectories,
      are resized; '' for synthetic images.
    count: number of JPEGs; the directory's files are repeated if necessary.

  Raises:
    slim.errors.DataError: the directory has no JPEG, or a file is not one.
  """
  if not source_dir:
    random = np.random.default_rng(0)
    return [_jpeg(_synthetic_pixels(random)) for _ in range(count)]
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
      'files that are not JPEGs to another folder.'
    ) from error
  return [jpegs[i % len(jpegs)] for i in range(count)]


def _synthetic_pixels(random: np.random.Generator) -> tf.Tensor:
  """Returns coarse and fine noise that compresses like a photograph."""
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
  """Writes the photographs in each storage, in a directory of its name."""
  if {'database', 'folder'} & {*storages}:
    images = folder / 'folder' / _SPLIT / 'photographs'
    images.mkdir(parents=True)
    for number, jpeg in enumerate(jpegs):
      (images / f'{number:06d}.jpg').write_bytes(jpeg)
  if 'database' in storages:
    data_set = catalog.find(STORAGES['folder'])
    stored = write_db.open_images(data_set, folder / 'folder', _SPLIT)
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
          features.IMAGE: features.bytes_feature(jpeg),
          'image/class/label': features.int_feature(1),
        }
        writer.write(features.serialize(image))
