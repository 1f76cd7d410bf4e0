"""Converts any image file to what a record holds: an RGB JPEG, or pixels.

The first bytes of a file determine its format, not its name. A JPEG that a
trainer can read is copied unchanged, byte for byte. Other files are decoded
and compressed as JPEG of quality 95. Files are untrusted until decoded.
"""

import io
import struct
from typing import NamedTuple

import numpy as np
import PIL
import tensorflow as tf
from PIL import Image
from PIL import ImageFile
from PIL import ImageOps

# ImageNet's largest photo has 61 million pixels. At 89 million, Pillow begins
# to warn of decompression bombs.
MAX_PIXELS = 89_478_485
# Uncompressed size of MAX_PIXELS, with 16 bits for each of 4 channels.
MAX_BYTES = 8 * MAX_PIXELS

RAW = b'RAW'

# The formats that Pillow may try: every decoder is an attack surface.
_FORMATS = ('JPEG', 'PNG', 'GIF', 'BMP', 'WEBP')
# MPO is a JPEG followed by further pictures.
_JPEGS = ('JPEG', 'MPO')
_JPEG_MODES = ('RGB', 'L')  # stored unchanged: decoders convert both to RGB
_JPEG_START, _JPEG_END = b'\xff\xd8\xff', b'\xff\xd9'
_JPEG_FRAMES = (0xC0, 0xC1, 0xC2)
_JPEG_SCAN = 0xDA
# Usual markers before the scan of a JPEG, without EXIF and XMP (0xE1).
_JPEG_USUAL = {*_JPEG_FRAMES, 0xC4, 0xDB, 0xDD, 0xFE, 0xE0, *range(0xE2, 0xF0)}
# All decoders decode these modes to the same pixels.
_PNG_MODES = ('RGB', 'L', 'P', '1', 'I', 'I;16')
# Trainers decode with INTEGER_FAST, which wraps white to black, and black to
# white, at the edges of some images of quality 98 and more.
QUALITY = 95
_ORIENTATION = 0x0112  # the EXIF tag
_UPRIGHT = 1
_BACKGROUND = (255, 255, 255)


class ImageError(ValueError):
  """The reason why a file is not a usable image."""


class Encoded(NamedTuple):
  """An image as a record stores it.

  Attributes:
    content: a JPEG, or the pixels, uint8 [height, width, 3], row by row.
    height: in pixels.
    width: in pixels.
  """

  content: bytes
  height: int
  width: int


class Decodable(NamedTuple):
  """An image that TensorFlow decodes to what an image viewer shows.

  Attributes:
    content: a JPEG, or the pixels, uint8 [height, width, 3], row by row.
    image_format: `RAW` for pixels; b'' for a JPEG.
    size: height and width in pixels; (-1, -1) for a JPEG, whose header has
      them.
  """

  content: bytes
  image_format: bytes
  size: tuple[int, int]


def check_bytes(size: int) -> None:
  """Raises `ImageError` for a file size beyond that of any valid image."""
  if size > MAX_BYTES:
    raise ImageError(f'expected at most {MAX_BYTES} bytes; received {size}')


def to_decodable(content: bytes) -> Decodable:
  """Converts a file to an upright image without transparency.

  A JPEG that TensorFlow decodes to what `to_jpeg` stores is not decoded here.
  For most of these, only the first bytes are read.

  Args:
    content: content of an image file, as in `to_jpeg`.

  Returns:
    The unchanged JPEG, or the pixels of any other image.

  Raises:
    ImageError: as `to_jpeg`.
  """
  if _is_plain_jpeg(content):
    return Decodable(content, b'', (-1, -1))
  with _open(content) as image:
    if _is_usable_jpeg(image):
      # Without the usual end it may be cut short, so it is decoded.
      if not content.endswith(_JPEG_END):
        _check_jpeg(content)
      return Decodable(content, b'', (-1, -1))
    pixels = _rgb(image, upright=True)
  return Decodable(pixels.tobytes(), RAW, (pixels.height, pixels.width))


def to_stored(content: bytes) -> Encoded:
  """Checks an image by decoding it; converts it if decoders would differ.

  Args:
    content: content of an image file, as in `to_jpeg`.

  Returns:
    The unchanged file if it is an upright JPEG in RGB or grey, or an upright
    PNG without transparency; otherwise the result of `to_jpeg`.

  Raises:
    ImageError: as `to_jpeg`.
  """
  with _open(content) as image:
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
  """Checks an image by decoding it; converts it to JPEG if necessary.

  Args:
    content: content of a JPEG, PNG, GIF, BMP or WebP file. Of several
      pictures the first is used. Transparent parts become white.
    upright: rotates photos according to their EXIF orientation. A rotated
      JPEG is compressed again.

  Raises:
    ImageError: the image has another format, is damaged, or is too large.
  """
  with _open(content) as image:
    if _is_usable_jpeg(image, upright):
      _check_jpeg(content)
      return Encoded(content, image.height, image.width)
    pixels = _rgb(image, upright)
  buffer = io.BytesIO()
  # subsampling=0 keeps the full resolution of the colours.
  pixels.save(buffer, 'JPEG', quality=QUALITY, subsampling=0)
  return Encoded(buffer.getvalue(), pixels.height, pixels.width)


def to_pixels(content: bytes, side: int = 0, upright: bool = True) -> Encoded:
  """Decodes an image to RGB bytes.

  Args:
    content: content of an image file, as in `to_jpeg`.
    side: height and width to resize to, bilinearly and without keeping the
      aspect ratio, in pixels; 0 keeps the size.
    upright: rotates photos according to their EXIF orientation.

  Returns:
    The pixels, uint8 [height, width, 3], row by row.

  Raises:
    ImageError: as `to_jpeg`.
  """
  with _open(content) as image:
    pixels = _rgb(image, upright)
  if side:
    pixels = pixels.resize((side, side), Image.Resampling.BILINEAR)
  return Encoded(pixels.tobytes(), pixels.height, pixels.width)


def _open(content: bytes) -> ImageFile.ImageFile:
  """Reads the header of an image and checks its size."""
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
  # Pillow's decoders raise arbitrary errors for damaged files.
  except Exception as error:
    raise _damaged(error) from error
  if image.width * image.height > MAX_PIXELS:
    raise _too_large(f'{image.width} x {image.height}')
  if image.format in _JPEGS and not _has_room(content, *image.size):
    raise ImageError(
      f'expected a whole JPEG; received {len(content)} bytes for '
      f'{image.width} x {image.height} pixels'
    )
  _reduce_colour_key(image)
  return image


def _reduce_colour_key(image: ImageFile.ImageFile) -> None:
  """Reduces the transparent colour of 16-bit RGB to the bits of the pixels.

  Pillow keeps only the high bytes of pixels, and the whole transparent colour.
  """
  key = image.info.get('transparency')
  if key and image.tile and image.tile[0][3] == 'RGB;16B':
    image.info['transparency'] = tuple(value >> 8 for value in key)


def _has_room(content: bytes, width: int, height: int) -> bool:
  """Returns whether a JPEG has a bit for each block of 8 x 8 pixels."""
  return 8 * len(content) >= (width // 8) * (height // 8)


def _is_usable_jpeg(image: Image.Image, upright: bool = True) -> bool:
  """Returns whether an image is a JPEG that is used unchanged."""
  return (
    image.format in _JPEGS
    and image.mode in _JPEG_MODES
    and (not upright or _orientation(image) == _UPRIGHT)
  )


def _is_plain_jpeg(content: bytes) -> bool:
  """Returns whether the markers show a JPEG that `_is_usable_jpeg` accepts.

  Returns False if Pillow has to decide: for EXIF and XMP, which may contain an
  orientation, for other numbers of channels, and for anything unusual.
  """
  if not (content.startswith(_JPEG_START) and content.endswith(_JPEG_END)):
    return False
  frame, position = b'', 2
  while content[position : position + 1] == b'\xff':
    marker = content[position + 1]
    if marker == _JPEG_SCAN:
      break
    length = int.from_bytes(content[position + 2 : position + 4], 'big')
    if marker not in _JPEG_USUAL:
      return False
    if marker in _JPEG_FRAMES:
      frame = content[position + 4 : position + 10]
    position += 2 + length
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
  except Exception:  # damaged EXIF has no orientation; the image may be valid
    return _UPRIGHT


def _check_jpeg(content: bytes) -> None:
  """Decodes with TensorFlow, as trainers do, at an eighth of the size.

  This reads the whole file but does not compute all pixels.
  """
  try:
    tf.io.decode_jpeg(content, channels=3, ratio=8)
  except tf.errors.InvalidArgumentError as error:
    raise ImageError(
      'expected a whole JPEG; received one that TensorFlow cannot decode'
    ) from error


def _rgb(image: Image.Image, upright: bool) -> Image.Image:
  """Decodes the first picture to RGB; transparent parts become white."""
  try:
    image.load()
    if upright and _orientation(image) != _UPRIGHT:
      image = ImageOps.exif_transpose(image)
    if image.mode.startswith('I'):  # 16 bits, which `convert` would cut off
      image = _eight_bits(image)
    if image.has_transparency_data:
      image = image.convert('RGBA')
      canvas = Image.new('RGB', image.size, _BACKGROUND)
      canvas.paste(image, mask=image.getchannel('A'))
      return canvas
    return image.convert('RGB')
  except Exception as error:  # as in _open
    raise _damaged(error) from error


def _eight_bits(image: Image.Image) -> Image.Image:
  """Returns the high bytes of 16-bit grey; its transparent colour as alpha."""
  values = np.asarray(image).astype(np.int64)
  grey = Image.fromarray((values >> 8).clip(0, 255).astype(np.uint8))
  key = image.info.get('transparency')
  if key is not None:
    grey.putalpha(Image.fromarray(values != key).convert('L'))
  return grey


def _too_large(received: str) -> ImageError:
  return ImageError(
    f'expected at most {MAX_PIXELS} pixels; received {received}'
  )


def _damaged(error: Exception) -> ImageError:
  return ImageError(f'expected a whole image; received one with "{error}"')
