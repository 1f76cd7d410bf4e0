"""Makes image files of many kinds, for the tests of slim."""

import io
import struct
import zlib

import numpy as np
from PIL import Image


def picture(height=20, width=30, seed=0):
  """A smooth picture: JPEG keeps it well."""
  y, x = np.mgrid[:height, :width]
  phase = np.array([0, 20, 40]) + seed % 40
  values = y[..., None] * 3 + x[..., None] * 2 + phase
  return Image.fromarray(values.astype(np.uint8))


def saved(image, image_format, **options):
  buffer = io.BytesIO()
  image.save(buffer, image_format, **options)
  return buffer.getvalue()


def jpeg(seed=0, **options):
  return saved(picture(seed=seed), 'JPEG', **options)


def turned_jpeg(orientation):
  """A JPEG that EXIF says to turn."""
  exif = Image.Exif()
  exif[0x0112] = orientation
  return saved(picture(), 'JPEG', exif=exif, quality=95)


def bomb(side=20_000):
  """A PNG of a few hundred kilobytes that has side x side pixels."""
  compressor = zlib.compressobj(9)
  row = bytes(1 + 3 * side)
  pixels = b''.join(compressor.compress(row) for _ in range(50))
  pixels += compressor.flush()
  return _png((side, side, 8, 2), {b'IDAT': pixels})


def png_of_16_bits(values, clear):
  """A PNG of uint16 [height, width, 1 or 3] with a transparent colour."""
  height, width, channels = values.shape
  kind = {1: 0, 3: 2}[channels]
  rows = b''.join(b'\0' + row.astype('>u2').tobytes() for row in values)
  content = {
    b'tRNS': np.asarray(clear, '>u2').tobytes(),
    b'IDAT': zlib.compress(rows),
  }
  return _png((width, height, 16, kind), content)


def _png(header, chunks):
  """A PNG of (width, height, bits, kind of colours) and further chunks."""
  named = {
    b'IHDR': struct.pack('>IIBBBBB', *header, 0, 0, 0),
    **chunks,
    b'IEND': b'',
  }
  return b'\x89PNG\r\n\x1a\n' + b''.join(
    struct.pack('>I', len(content))
    + kind
    + content
    + struct.pack('>I', zlib.crc32(kind + content))
    for kind, content in named.items()
  )


def write_folders(folder, counts):
  """Writes JPEGs; counts by class; returns {class/name: content}."""
  written = {}
  for name, count in counts.items():
    (folder / name).mkdir(parents=True)
    for i in range(count):
      content = jpeg(seed=len(written), quality=90)
      (folder / name / f'{i}.jpg').write_bytes(content)
      written[f'{name}/{i}.jpg'] = content
  return written
