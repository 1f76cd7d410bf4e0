"""Images, as converters and trainers read them."""

import struct
import zlib

import numpy as np
import tensorflow as tf
from PIL import Image

from slim.datasets.photographs import images
from slim.preprocessing import photographs
from tests.fuzzing import mutation
from tests.fuzzing import of_records
from tests.fuzzing.target import Target
from tests.slim import image_files


def _with_crcs(random, content):
  """The PNG with the checksums that its chunks should have."""
  del random
  found, at = [content[:8]], 8
  while at + 12 <= len(content):
    (size,) = struct.unpack_from('>I', content, at)
    body = content[at + 4 : at + 8 + size]
    if len(body) < 4 + size:
      break
    found.append(
      content[at : at + 4] + body + struct.pack('>I', zlib.crc32(body))
    )
    at += 12 + size
  return b''.join(found) + content[at:]


def jpeg():
  """A JPEG, as converters take it."""

  def parse(content, folder):
    del folder
    images.to_decodable(content)
    for take in (images.to_jpeg, images.to_pixels, images.to_stored):
      found = take(content)
      if found.height * found.width > images.MAX_PIXELS:
        raise AssertionError('an image that is too large')

  picture = image_files.picture()
  return Target(
    parse,
    [
      image_files.jpeg(),
      image_files.turned_jpeg(6),
      image_files.saved(picture.convert('L'), 'JPEG'),
      image_files.saved(picture.convert('CMYK'), 'JPEG'),
      image_files.saved(picture, 'JPEG', progressive=True),
    ],
    (images.ImageError,),
    ['slim.datasets.photographs.images'],
    of_records.IMAGE_WORDS,
    # MAX_PIXELS as RGBA, and as RGB.
    mebibytes=1024,
    seconds=30,
  )


def png():
  """A PNG, as converters take it."""

  def repair(random, content):
    if random.randrange(2):
      return _with_crcs(random, content)
    # Of other pixels than the header says.
    rows = zlib.compress(
      mutation.mutated(random, bytes(20 * 91), [b'\x01' * 91])
    )
    head = _with_crcs(random, mutation.mutated(random, header, [header]))
    return _with_crcs(
      random,
      head + struct.pack('>I', len(rows)) + b'IDAT' + rows + b'....' + end,
    )

  picture = image_files.picture()
  deep = np.arange(600, dtype=np.uint16).reshape(20, 30) * 109
  seeds = [
    image_files.saved(picture, 'PNG'),
    image_files.saved(picture.convert('P'), 'PNG', transparency=3),
    image_files.saved(picture.convert('RGBA'), 'PNG'),
    image_files.saved(Image.fromarray(deep), 'PNG'),
  ]
  header, end = seeds[0][:33], seeds[0][-12:]
  return jpeg()._replace(seeds=seeds, repair=repair)


def other_image():
  """A GIF, BMP or WebP, as converters take it."""
  picture = image_files.picture()
  return jpeg()._replace(
    seeds=[
      image_files.saved(picture, 'GIF'),
      image_files.saved(picture, 'GIF', save_all=True, append_images=[picture]),
      image_files.saved(picture, 'BMP'),
      image_files.saved(picture.convert('P'), 'BMP'),
      image_files.saved(picture, 'WEBP'),
      image_files.saved(picture.convert('RGBA'), 'WEBP', lossless=True),
    ]
  )


def decoded_image():
  """An image, as a trainer decodes it from a record."""

  @tf.function(input_signature=[tf.TensorSpec([], tf.string)])
  def decode(encoded):
    found = photographs.from_encoded(
      encoded,
      image_format=tf.constant(b''),
      size=tf.constant([-1, -1]),
      boxes=tf.zeros([0, 4]),
    )
    return found.whole()

  def parse(content, folder):
    del folder
    if decode(tf.constant(content)).shape[2] != 3:
      raise AssertionError('no photograph')

  return of_records.photograph()._replace(
    parse=parse,
    seeds=[*jpeg().seeds[:3], *png().seeds[:3], *other_image().seeds[:3]],
    modules=['slim.preprocessing.photographs'],
  )
