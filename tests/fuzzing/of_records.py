"""Records, as converters and trainers read them."""

import hashlib
import json
import struct

import numpy as np
import tensorflow as tf

from slim import errors
from slim.datasets import examples
from slim.datasets.files import tensor_protos as protos
from slim.datasets.records import features
from slim.datasets.records import manifest
from slim.datasets.records import records
from slim.datasets.records import shard_manifest
from slim.preprocessing import photographs
from tests.fuzzing.target import Target
from tests.slim import image_files
from tests.slim import record_files

_REFUSED = (errors.DataError,)
IMAGE_WORDS = (
  *(b'\xff\xd8\xff\xe0', b'\xff\xc0\x00\x11\x08', b'\xff\xda', b'\xff\xd9'),
  *(b'\xff\xe1', b'Exif\0\0MM\0*', b'\xff\xdb', b'\xff\xc4', b'\xff\xdd\0\x04'),
  *(b'IHDR', b'IDAT', b'IEND', b'tRNS', b'PLTE', b'iCCP', b'zTXt', b'acTL'),
  *(b'GIF89a', b'BM', b'RIFF', b'WEBPVP8 ', b'\x21\xf9\x04', b'\x2c'),
)
_KEYS = (
  *(b'image/encoded', b'image/format', b'image/class/label', b'image/height'),
  *(
    b'image/width',
    b'image/object/bbox/xmin',
    b'\x0a\x02',
    b'\x12\x04\x0a\x02',
  ),
  *(
    b'\x1a\x03\x0a\x01\x05',
    b'\x12\x00',
    b'\x0a\xff\xff\xff\xff\x0f',
    b'\x9a\x01',
  ),
)


def _masked_crc(content):
  return struct.pack('<I', records._masked_crc32c(content))


def _framed(payload):
  length = struct.pack('<Q', len(payload))
  return length + _masked_crc(length) + payload + _masked_crc(payload)


# --- TFRecord


def _reframed(random, content):
  """The records with the checksums that they should have."""
  del random
  found, at = [], 0
  while at + 12 <= len(content):
    (size,) = struct.unpack_from('<Q', content, at)
    payload = content[at + 12 : at + 12 + size]
    if len(payload) < size:
      # A length that leads past the end, by which the file was cut short.
      length = content[at : at + 8]
      found.append(length + _masked_crc(length) + payload)
      return b''.join(found)
    found.append(_framed(payload))
    at += 16 + size
  return b''.join(found) + content[at:]


def tfrecord():
  """A TFRecord file, of which every record is read."""

  def parse(content, folder):
    path = folder / 'train-0'
    path.write_bytes(content)
    records.verify(path)

  return Target(
    parse,
    [_framed(b'one') + _framed(b'') + _framed(b'three' * 30), _framed(b'x')],
    _REFUSED,
    ['slim.datasets.records.records'],
    (_framed(b''), struct.pack('<Q', 2**63), _framed(b'abc')[:12]),
    _reframed,
  )


# --- tf.Example


def _example(encoded, image_format, size, label=1, boxes=()):
  described = features.image_features(image_format, (*size, 3), label, 'one')
  return features.serialize(
    {
      features.IMAGE: features.bytes_feature(encoded),
      **described,
      **features.box_features(boxes),
    }
  )


def _png(height=20, width=30):
  return image_files.saved(image_files.picture(height, width), 'PNG')


def example():
  """An example of small images, as a trainer decodes it."""

  @tf.function(input_signature=[tf.TensorSpec([1], tf.string)])
  def decode(serialized):
    return examples.decode_png(serialized, (20, 30, 3), 10)

  def parse(content, folder):
    del folder
    found, labels = decode(tf.constant([content]))
    if not 0 <= labels.numpy()[0] < 10 or found.shape != (1, 20, 30, 3):
      raise AssertionError('an example that is none of the data set')

  return Target(
    parse,
    [_example(_png(), b'png', (20, 30))],
    # Who iterates over examples expects these.
    records.FAILURES,
    ['slim.datasets.examples'],
    _KEYS,
  )


def photograph():
  """An example of photographs, all of whose pixels are decoded."""

  @tf.function(input_signature=[tf.TensorSpec([], tf.string)])
  def decode(serialized):
    stored = examples.parse(serialized)
    labels = examples.check_labels(stored.label[tf.newaxis], 10)
    found = photographs.from_encoded(
      stored.encoded,
      image_format=stored.image_format,
      size=stored.size,
      boxes=stored.boxes,
    )
    return found.whole(), found.boxes, labels

  def parse(content, folder):
    del folder
    pixels, boxes, _ = decode(tf.constant(content))
    if pixels.shape[2] != 3 or boxes.shape[1] != 4:
      raise AssertionError('no photograph')

  box = [(0.1, 0.2, 0.7, 0.9)]
  return Target(
    parse,
    [
      _example(image_files.jpeg(), b'JPEG', (20, 30), boxes=box),
      _example(_png(), b'png', (20, 30)),
      _example(bytes(20 * 30 * 3), b'RAW', (20, 30)),
    ],
    records.FAILURES,
    ['slim.datasets.examples', 'slim.preprocessing.photographs'],
    (*_KEYS, b'RAW', *IMAGE_WORDS),
    mebibytes=1024,
    seconds=30,
  )


def shard():
  """A shard of one record, whose shards.json fits it."""

  def parse(content, folder):
    path = folder / 'train-00000-of-00001'
    record_files.write(path, [content])
    told = json.dumps(
      {
        'format': 1,
        'dataset': 'mnist',
        'num_classes': 10,
        'labels': None,
        'features': kinds,
        'splits': {
          'train': {
            'num_examples': 1,
            'shards': [
              {
                'file': path.name,
                'num_examples': 1,
                'size': path.stat().st_size,
                'sha256': hashlib.sha256(path.read_bytes()).hexdigest(),
              }
            ],
          }
        },
      }
    )
    (folder / manifest.FILE_NAME).write_text(told, encoding='utf-8')
    shard_manifest.verify(folder)

  seed = _example(b'pixels', b'png', (20, 30))
  features_of = tf.train.Example.FromString(seed).features.feature
  kinds = {key: features_of[key].WhichOneof('kind') for key in features_of}
  return Target(
    parse,
    [seed],
    _REFUSED,
    ['slim.datasets.records.shard_manifest'],
    _KEYS,
  )


def tensor_protos():
  """A record of Caffe2's databases."""

  def parse(content, folder):
    del folder
    image = protos.decode(content)
    np.array(image.size, np.int32)
    np.array(image.label, np.int64)
    if image.image_format and len(image.encoded) != 3 * np.prod(image.size):
      raise AssertionError('pixels of another size')

  seeds = [
    protos.encode(protos.Image(b'file', b'', (-1, -1), 7)),
    protos.encode(protos.Image(bytes(range(90)), protos.RAW, (5, 6), 300)),
  ]
  return Target(
    parse,
    seeds,
    _REFUSED,
    ['slim.datasets.files.tensor_protos'],
    (
      *(b'\x08\x01', b'\x10\x02', b'\x10\x03', b'\x10\x0a', b'\x22\x01\x07'),
      *(
        b'\x2a\x02ab',
        b'\x32\x02ab',
        b'\x52\x01\x07',
        b'\x0a\x04',
        b'\x08\xff',
      ),
      b'\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01',
    ),
  )
