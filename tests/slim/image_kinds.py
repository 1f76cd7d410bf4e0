"""Image files of the kinds on which decoders differ, for tests of slim."""

import numpy as np
from PIL import Image

from tests.slim import image_files

JPEG_ERROR = 8  # of 255; smooth pictures of quality 95 and more


def _saved(image_format, mode='RGB', **options):
  picture = image_files.picture().convert(mode)
  return lambda: image_files.saved(picture, image_format, **options)


def _sixteen_bits():
  values = np.linspace(0, 65_535, 400).reshape(20, 20).astype(np.uint16)
  return image_files.saved(Image.fromarray(values), 'PNG')


def _upright_with_exif():
  return image_files.turned_jpeg(1)


def _behind_its_end():
  return image_files.jpeg() + b'a trailer of the camera'


# Every decoder makes the same of these.
ORDINARY = {
  'jpeg': _saved('JPEG'),
  'grey jpeg': _saved('JPEG', 'L'),
  'progressive jpeg': _saved('JPEG', progressive=True),
  'jpeg with exif': _upright_with_exif,
  'jpeg with a trailer': _behind_its_end,
  'png': _saved('PNG'),
  'grey png': _saved('PNG', 'L'),
  'png with a palette': _saved('PNG', 'P'),
  'png of two colours': _saved('PNG', '1'),
  'png of 16 bits': _sixteen_bits,
  'bmp': _saved('BMP'),
  'gif': _saved('GIF'),
}


def _turned(orientation):
  """A photo that stands on its side in the file."""

  def make():
    stored = np.asarray(image_files.picture()).astype(int)
    turns = {3: 2, 6: -1, 8: 1}
    upright = np.rot90(stored, turns[orientation])
    return image_files.turned_jpeg(orientation), upright, JPEG_ERROR

  return make


def _transparent(image_format, **options):
  def make():
    picture = image_files.picture().convert('RGBA')
    picture.paste((10, 20, 30, 0), (0, 0, 16, 16))
    shown = np.asarray(image_files.picture()).astype(int)
    shown[:16, :16] = 255
    return image_files.saved(picture, image_format, **options), shown, 0

  return make


def _clear_colour(mode, clear):
  """A PNG of 16 bits whose upper left corner has the transparent colour."""

  def make():
    picture = np.asarray(image_files.picture().convert(mode)).astype(int)
    picture = picture.reshape(20, 30, -1)
    values = 256 * picture
    values[:16, :16] = clear
    shown = np.array(np.broadcast_to(picture, (20, 30, 3)))
    shown[:16, :16] = 255
    return image_files.png_of_16_bits(values, clear), shown, 0

  return make


def _animated():
  first, second = image_files.picture(), image_files.picture(seed=9)
  content = image_files.saved(
    first, 'WEBP', lossless=True, save_all=True, append_images=[second]
  )
  return content, np.asarray(first).astype(int), 0


def _cmyk():
  content = _saved('JPEG', 'CMYK', quality=100)()
  return content, np.asarray(image_files.picture()).astype(int), JPEG_ERROR


# File, the picture that a viewer shows, and how far from it one may be.
RESOLVED = {
  'photo upside down': _turned(3),
  'photo on its left': _turned(6),
  'photo on its right': _turned(8),
  'png with alpha': _transparent('PNG'),
  'webp with alpha': _transparent('WEBP', lossless=True),
  'png of 16 bits with a clear grey': _clear_colour('L', [1000]),
  'png of 16 bits with a clear colour': _clear_colour('RGB', [1000, 9000, 70]),
  'animated webp': _animated,
  'cmyk': _cmyk,
}

# Name of a file that is no image: the message about it.
BAD = {
  'Thumbs.db': 'expected JPEG, PNG, GIF, BMP or WebP',
  'page.jpg': 'expected JPEG, PNG, GIF, BMP or WebP; received a file',
  'cut.jpg': 'expected a whole JPEG; received one that TensorFlow',
  'empty.png': 'expected an image; received an empty file',
  'of a terabyte.jpg': 'expected at most 715827880 bytes; received 1099',
}


def write_bad(path):
  """Writes the bad file of a path's name."""
  contents = {
    'Thumbs.db': b'\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1' + bytes(1000),
    'page.jpg': b'<!DOCTYPE html><title>404 Not Found</title>',
    'cut.jpg': image_files.jpeg()[:-20],
    'empty.png': b'',
    'of a terabyte.jpg': image_files.jpeg(),
  }
  path.write_bytes(contents[path.name])
  if path.name == 'of a terabyte.jpg':
    with open(path, 'r+b') as file:
      file.truncate(1 << 40)  # without a byte on the disk
