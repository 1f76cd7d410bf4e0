"""Makes of any image file what a record holds: a JPEG in RGB, or its pixels.

Files are what their first bytes say, not what their names say. A JPEG that a
trainer can read as it is stays as it is, byte for byte; all else is decoded
and compressed as JPEG of quality 100. Files are hostile until decoded.
"""

import io
import struct
from typing import NamedTuple

import numpy as np
import PIL
import tensorflow as tf
from PIL import Image
from PIL import ImageOps

# The largest photo of ImageNet has 61 million pixels; 89 million is also where
# Pillow begins to warn of files made to fill the memory.
MAX_PIXELS = 89_478_485
# What these take uncompressed, with 16 bits of each of 4 channels.
MAX_BYTES = 8 * MAX_PIXELS

RAW = b'RAW'

# Formats that Pillow may try: each further decoder is a further way in.
_FORMATS = ('JPEG', 'PNG', 'GIF', 'BMP', 'WEBP')
# MPO is JPEG with further pictures behind the first.
_JPEGS = ('JPEG', 'MPO')
_JPEG_MODES = ('RGB', 'L')  # stored as they are: decoders make RGB of both
_JPEG_START, _JPEG_END = b'\xff\xd8\xff', b'\xff\xd9'
_JPEG_FRAMES = (0xC0, 0xC1, 0xC2)
_JPEG_SCAN = 0xDA
# What a JPEG usually has before its scan, without EXIF and XMP (0xE1).
_JPEG_USUAL = {*_JPEG_FRAMES, 0xC4, 0xDB, 0xDD, 0xFE, 0xE0, *range(0xE2, 0xF0)}
# Of these every decoder makes the same.
_PNG_MODES = ('RGB', 'L', 'P', '1', 'I', 'I;16')
_QUALITY = 100
_ORIENTATION = 0x0112  # the tag of EXIF
_UPRIGHT = 1
_BACKGROUND = (255, 255, 255)


class ImageError(ValueError):
  """A file is no image that can be used; says why."""


class Encoded(NamedTuple):
  """An image as a record holds it.

  Attributes:
    content: a JPEG, or the pixels row by row, 3 bytes each.
    height: in pixels.
    width: in pixels.
  """

  content: bytes
  height: int
  width: int


class Decodable(NamedTuple):
  """An image that TensorFlow decodes to what a viewer shows.

  Attributes:
    content: a JPEG, or the pixels row by row, 3 bytes each.
    image_format: `RAW` for pixels; else b''.
    size: height and width in pixels; (-1, -1) for a JPEG, which says its own.
  """

  content: bytes
  image_format: bytes
  size: tuple[int, int]


def check_bytes(size: int) -> None:
  """Raises `ImageError` for a file of more bytes than any image needs."""
  if size > MAX_BYTES:
    raise ImageError(f'expected at most {MAX_BYTES} bytes; received {size}')


def to_decodable(content: bytes) -> Decodable:
  """Makes of a file what readers decode, upright and without transparency.

  A JPEG that TensorFlow decodes to what `to_jpeg` stores is not decoded here,
  and of most of them only the first bytes are looked at.

  Args:
    content: see `to_jpeg`.

  Returns:
    The JPEG as it is, or the pixels of all else.

  Raises:
    ImageError: as `to_jpeg`.
  """
  if _is_plain_jpeg(content):
    return Decodable(content, b'', (-1, -1))
  with _opened(content) as image:
    if _is_kept(image):
      # One that is cut, or has another end, is decoded.
      if not content.endswith(_JPEG_END):
        _check_jpeg(content)
      return Decodable(content, b'', (-1, -1))
    pixels = _rgb(image, upright=True)
  return Decodable(pixels.tobytes(), RAW, (pixels.height, pixels.width))


def to_stored(content: bytes) -> Encoded:
  """Checks an image by decoding it; changes it where decoders would differ.

  Args:
    content: see `to_jpeg`.

  Returns:
    The file byte for byte where it is an upright JPEG in RGB or grey, or an
    upright PNG without transparency; else the image as `to_jpeg` makes it.

  Raises:
    ImageError: as `to_jpeg`.
  """
  with _opened(content) as image:
    if (
      image.format == 'PNG'
      and image.mode in _PNG_MODES
      and not image.has_transparency_data
      and _orientation(image) == _UPRIGHT
    ):
      _rgb(image, upright=True)
      return Encoded(content, image.height, image.width)
  return to_jpeg(content)


def to_jpeg(content: bytes, upright: bool = True) -> Encoded:
  """Checks an image by decoding it, and makes it JPEG where it is not.

  Args:
    content: of a JPEG, PNG, GIF, BMP or WebP file; of several pictures the
      first is taken. Transparent parts become white.
    upright: turn photos as their EXIF orientation says. A JPEG that is turned
      is compressed again.

  Returns:
    The JPEG.

  Raises:
    ImageError: no such image, damaged, or too large.
  """
  with _opened(content) as image:
    if _is_kept(image, upright):
      _check_jpeg(content)
      return Encoded(content, image.height, image.width)
    pixels = _rgb(image, upright)
  buffer = io.BytesIO()
  # 0: colours in full resolution, too.
  pixels.save(buffer, 'JPEG', quality=_QUALITY, subsampling=0)
  return Encoded(buffer.getvalue(), pixels.height, pixels.width)


def to_pixels(content: bytes, side: int = 0, upright: bool = True) -> Encoded:
  """Decodes an image to bytes of RGB.

  Args:
    content: see `to_jpeg`.
    side: height and width to resize to, not keeping the aspect, bilinear; 0
      keeps the size.
    upright: see `to_jpeg`.

  Returns:
    The pixels, uint8 [height, width, 3], row by row.

  Raises:
    ImageError: as `to_jpeg`.
  """
  with _opened(content) as image:
    pixels = _rgb(image, upright)
  if side:
    pixels = pixels.resize((side, side), Image.Resampling.BILINEAR)
  return Encoded(pixels.tobytes(), pixels.height, pixels.width)


def _opened(content: bytes) -> Image.Image:
  """Reads the header."""
  if not content:
    raise ImageError('expected an image; received an empty file')
  try:
    image = Image.open(io.BytesIO(content), formats=_FORMATS)
  except PIL.UnidentifiedImageError as error:
    raise ImageError(
      f'expected JPEG, PNG, GIF, BMP or WebP; received a file that begins '
      f'with {content[:8]!r}'
    ) from error
  except (Image.DecompressionBombError, Image.DecompressionBombWarning) as bomb:
    raise _too_large(str(bomb)) from bomb
  # Pillow's decoders raise whatever their parsing meets.
  except Exception as error:
    raise _damaged(error) from error
  if image.width * image.height > MAX_PIXELS:
    raise _too_large(f'{image.width} x {image.height}')
  if image.format in _JPEGS and not _has_room(content, *image.size):
    raise ImageError(
      f'expected a whole JPEG; received {len(content)} bytes for '
      f'{image.width} x {image.height} pixels'
    )
  return image


def _has_room(content: bytes, width: int, height: int) -> bool:
  """Whether a JPEG has a bit for each block of 8 x 8 pixels."""
  return 8 * len(content) >= (width // 8) * (height // 8)


def _is_kept(image: Image.Image, upright: bool = True) -> bool:
  """Whether an image is a JPEG that is stored and decoded as it is."""
  return (
    image.format in _JPEGS
    and image.mode in _JPEG_MODES
    and (not upright or _orientation(image) == _UPRIGHT)
  )


def _is_plain_jpeg(content: bytes) -> bool:
  """Whether a file is a JPEG that is surely kept, see `_is_kept`.

  False where Pillow has to look: at EXIF and XMP, which may say how to turn it,
  at other numbers of colours, and at whatever is unusual.
  """
  if not (content.startswith(_JPEG_START) and content.endswith(_JPEG_END)):
    return False
  frame, place = b'', 2
  while content[place : place + 1] == b'\xff':
    marker = content[place + 1]
    if marker == _JPEG_SCAN:
      break
    length = int.from_bytes(content[place + 2 : place + 4], 'big')
    if marker not in _JPEG_USUAL:
      return False
    if marker in _JPEG_FRAMES:
      frame = content[place + 4 : place + 10]
    place += 2 + length
  else:
    return False
  if len(frame) < 6:
    return False
  bits, height, width, channels = struct.unpack('>BHHB', frame)
  return (
    bits == 8
    and channels in (1, 3)
    and 0 < height * width <= MAX_PIXELS
    and _has_room(content, width, height)
  )


def _orientation(image: Image.Image) -> int:
  try:
    return image.getexif().get(_ORIENTATION, _UPRIGHT)
  except Exception:  # damaged EXIF says nothing; the image may be whole
    return _UPRIGHT


def _check_jpeg(content: bytes) -> None:
  """Decodes with what trainers decode with, at an eighth of the size.

  All of the file is read even so; only the pixels are not all computed.
  """
  try:
    tf.io.decode_jpeg(content, channels=3, ratio=8)
  except tf.errors.InvalidArgumentError as error:
    raise ImageError(
      'expected a whole JPEG; received one that TensorFlow cannot decode'
    ) from error


def _rgb(image: Image.Image, upright: bool) -> Image.Image:
  """Decodes the first picture to RGB, transparent parts in white."""
  try:
    image.load()
    if upright and _orientation(image) != _UPRIGHT:
      image = ImageOps.exif_transpose(image)
    if image.mode.startswith('I'):  # 16 bits, which `convert` would cut off
      return Image.fromarray(_eight_bits(image)).convert('RGB')
    if image.has_transparency_data:
      image = image.convert('RGBA')
      ground = Image.new('RGB', image.size, _BACKGROUND)
      ground.paste(image, mask=image.getchannel('A'))
      return ground
    return image.convert('RGB')
  except Exception as error:  # as in _opened
    raise _damaged(error) from error


def _eight_bits(image: Image.Image) -> np.ndarray:
  """The high bytes of 16-bit grey."""
  return (np.asarray(image).astype(np.int64) >> 8).clip(0, 255).astype(np.uint8)


def _too_large(received: str) -> ImageError:
  return ImageError(
    f'expected at most {MAX_PIXELS} pixels; received {received}'
  )


def _damaged(error: Exception) -> ImageError:
  return ImageError(f'expected a whole image; received one with "{error}"')
