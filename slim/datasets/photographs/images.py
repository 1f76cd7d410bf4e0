"""Makes of any image file what a record holds: a JPEG in RGB, or its pixels.

Files are what their first bytes say, not what their names say. A JPEG that a
trainer can read as it is stays as it is, byte for byte; all else is decoded
and compressed as JPEG of quality 100. Files are hostile until decoded.
"""

import io
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from PIL import Image
from PIL import ImageOps

# The largest photo of ImageNet has 61 million pixels; 89 million is also where
# Pillow begins to warn of files made to fill the memory.
MAX_PIXELS = 89_478_485

# Formats that Pillow may try: each further decoder is a further way in.
_FORMATS = ('JPEG', 'PNG', 'GIF', 'BMP', 'WEBP')
# MPO is JPEG with further pictures behind the first.
_JPEGS = ('JPEG', 'MPO')
_JPEG_MODES = ('RGB', 'L')  # stored as they are: decoders make RGB of both
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
    if image.format in _JPEGS and image.mode in _JPEG_MODES:
      if not upright or _orientation(image) == _UPRIGHT:
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
  except Image.UnidentifiedImageError as error:
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
  if image.format in _JPEGS:
    # A block of 8 x 8 pixels takes a bit at least.
    blocks = (image.width // 8) * (image.height // 8)
    if 8 * len(content) < blocks:
      raise ImageError(
        f'expected a whole JPEG; received {len(content)} bytes for '
        f'{image.width} x {image.height} pixels'
      )
  return image


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
