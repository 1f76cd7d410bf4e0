import io
import struct

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from slim.datasets.photographs import images
from tests.slim import image_files
from tests.slim import image_kinds

JPEG_ERROR = 6  # of 255; smooth pictures at quality 95


def pixels_of(encoded):
  """Decodes with plain TensorFlow."""
  return tf.io.decode_jpeg(encoded.content, channels=3).numpy()


def check(encoded, expected, tolerance=JPEG_ERROR):
  found = pixels_of(encoded)
  assert found.shape == (encoded.height, encoded.width, 3)
  difference = found.astype(int) - np.asarray(expected).astype(int)
  assert np.abs(difference).max() <= tolerance


@pytest.mark.parametrize('mode', ['RGB', 'L'])
def test_a_jpeg_is_copied_byte_for_byte(mode):
  content = image_files.saved(image_files.picture().convert(mode), 'JPEG')
  encoded = images.to_jpeg(content)
  assert encoded == (content, 20, 30)


def test_a_progressive_jpeg_is_copied_byte_for_byte():
  content = image_files.jpeg(progressive=True)
  assert images.to_jpeg(content).content == content


@pytest.mark.parametrize('image_format', ['PNG', 'BMP', 'WEBP', 'GIF'])
def test_other_formats_become_jpeg(image_format):
  picture = image_files.picture()
  options = {'lossless': True} if image_format == 'WEBP' else {}
  encoded = images.to_jpeg(image_files.saved(picture, image_format, **options))
  assert encoded.content[:3] == b'\xff\xd8\xff'
  # GIF has 256 colours: Pillow's choice of them is what was stored.
  if image_format == 'GIF':
    stored = image_files.saved(picture, 'GIF')
    picture = Image.open(io.BytesIO(stored)).convert('RGB')
  check(encoded, picture)


def test_transparent_parts_become_white():
  picture = image_files.picture().convert('RGBA')
  picture.paste((10, 20, 30, 0), (0, 0, 16, 16))
  found = pixels_of(images.to_jpeg(image_files.saved(picture, 'PNG')))
  assert found[:8, :8].min() >= 250
  check_part = np.asarray(image_files.picture())[:, 24:].astype(int)
  assert np.abs(found[:, 24:] - check_part).max() <= JPEG_ERROR


def test_half_transparent_parts_are_mixed_with_white():
  picture = Image.new('LA', (16, 16), (100, 128))
  found = pixels_of(images.to_jpeg(image_files.saved(picture, 'PNG')))
  # 100 * 128 / 255 + 255 * 127 / 255
  assert np.abs(found.astype(int) - 177).max() <= 2


def test_palettes_are_flattened_with_their_transparent_colour():
  picture = Image.new('P', (16, 16), 1)
  picture.putpalette([255, 0, 0, 0, 0, 255])
  content = image_files.saved(picture, 'PNG')
  found = pixels_of(images.to_jpeg(content)).astype(int)
  assert np.abs(found - [0, 0, 255]).max() <= 3
  clear = image_files.saved(picture, 'PNG', transparency=1)
  assert pixels_of(images.to_jpeg(clear)).min() >= 250


def test_cmyk_is_converted():
  picture = image_files.picture()
  content = image_files.saved(picture.convert('CMYK'), 'JPEG', quality=100)
  encoded = images.to_jpeg(content)
  assert Image.open(io.BytesIO(encoded.content)).mode == 'RGB'
  check(encoded, picture, tolerance=8)


def test_sixteen_bits_are_scaled_and_not_cut_off():
  values = np.linspace(0, 65_535, 32 * 32).reshape(32, 32).astype(np.uint16)
  content = image_files.saved(Image.fromarray(values), 'PNG')
  expected = np.repeat((values >> 8)[..., None], 3, axis=2)
  check(images.to_jpeg(content), expected, tolerance=4)


def test_a_grey_near_the_clear_one_stays_visible_in_16_bits():
  values = np.full([16, 16, 1], 1001)
  content = image_files.png_of_16_bits(values, [1000])
  assert set(images.to_pixels(content).content) == {1001 >> 8}


# What a viewer does with the picture for each value of the tag.
TURNS = {
  2: lambda a: a[:, ::-1],
  3: lambda a: a[::-1, ::-1],
  4: lambda a: a[::-1],
  5: lambda a: a.transpose(1, 0, 2),
  6: lambda a: np.rot90(a, -1),
  7: lambda a: a[::-1, ::-1].transpose(1, 0, 2),
  8: lambda a: np.rot90(a),
}


@pytest.mark.parametrize('orientation', TURNS)
def test_photos_are_turned_as_exif_says(orientation):
  content = image_files.turned_jpeg(orientation)
  stored = tf.io.decode_jpeg(content).numpy()
  encoded = images.to_jpeg(content)
  check(encoded, TURNS[orientation](stored))
  assert Image.open(io.BytesIO(encoded.content)).getexif().get(0x0112) is None


def test_photos_are_not_turned_if_upright_is_false():
  content = image_files.turned_jpeg(6)
  assert images.to_jpeg(content, upright=False) == (content, 20, 30)


def test_an_upright_photo_with_exif_is_copied_byte_for_byte():
  content = image_files.turned_jpeg(1)
  assert images.to_jpeg(content).content == content


def test_pixels_are_stored_row_by_row_and_resized_on_demand():
  content = image_files.saved(image_files.picture(), 'PNG')
  raw = images.to_pixels(content)
  found = np.frombuffer(raw.content, np.uint8).reshape(20, 30, 3)
  np.testing.assert_array_equal(found, np.asarray(image_files.picture()))
  small = images.to_pixels(content, side=7)
  assert (small.height, small.width, len(small.content)) == (7, 7, 147)


@pytest.mark.parametrize(
  ('content', 'message'),
  [
    (b'', 'received an empty file'),
    (b'no image at all', "a file that begins with b'no image'"),
    (b'%!PS-Adobe-3.0 EPSF-3.0\n', 'expected JPEG, PNG, GIF, BMP or WebP'),
    (image_files.jpeg()[:-20], 'one that TensorFlow cannot decode'),
    (image_files.jpeg()[:30], 'expected'),
    (image_files.saved(image_files.picture(), 'PNG')[:-40], 'a whole image'),
    (image_files.saved(image_files.picture(), 'GIF')[:-60], 'a whole image'),
    (image_files.saved(image_files.picture(), 'WEBP')[:-40], 'a whole image'),
    (image_files.saved(image_files.picture(), 'BMP')[:-40], 'a whole image'),
  ],
)
def test_damaged_images_are_refused(content, message):
  with pytest.raises(images.ImageError, match=message):
    images.to_jpeg(content)


def test_a_decompression_bomb_is_refused():
  with pytest.raises(images.ImageError, match='at most 89478485 pixels'):
    images.to_jpeg(image_files.bomb())


@pytest.mark.filterwarnings('ignore::PIL.Image.DecompressionBombWarning')
def test_the_limit_holds_below_the_size_that_pillow_refuses():
  with pytest.raises(images.ImageError, match='received 9999 x 9999'):
    images.to_jpeg(image_files.bomb(9999))


@pytest.mark.parametrize('name', image_kinds.ORDINARY)
def test_ordinary_jpeg_and_png_are_stored_byte_for_byte(name):
  content = image_kinds.ORDINARY[name]()
  stored = images.to_stored(content)
  if 'jpeg' in name or 'png' in name:
    assert stored.content == content
  else:
    assert stored == images.to_jpeg(content)


@pytest.mark.parametrize('name', image_kinds.RESOLVED)
def test_images_that_decoders_show_differently_are_stored_as_jpeg(name):
  content, shown, _ = image_kinds.RESOLVED[name]()
  stored = images.to_stored(content)
  assert stored == images.to_jpeg(content)
  # Where a part is transparent there is an edge, at which JPEG rings.
  difference = np.abs(pixels_of(stored).astype(int) - shown)
  assert difference.mean() < 4


@pytest.mark.parametrize('name', ['jpeg', 'grey jpeg', 'progressive jpeg'])
def test_a_usual_jpeg_is_accepted_by_its_header_alone(name, monkeypatch):
  monkeypatch.setattr(images, '_open', None)
  content = image_kinds.ORDINARY[name]()
  assert images.to_decodable(content) == (content, b'', (-1, -1))


def test_a_jpeg_whose_exif_follows_other_segments_is_turned():
  content = image_files.turned_jpeg(6)
  start = content.index(b'\xff\xe1')
  end = start + 2 + int.from_bytes(content[start + 2 : start + 4], 'big')
  exif, rest = content[start:end], content[:start] + content[end:]
  scan = rest.index(b'\xff\xda')
  late = rest[:scan] + exif + rest[scan:]
  assert images.to_decodable(late).size == (30, 20)


def test_an_unusual_jpeg_is_checked_by_pillow():
  content = image_files.jpeg()
  filled = content[:2] + b'\xff' + content[2:]  # a fill byte, which is allowed
  assert images.to_decodable(filled).content in (filled, content)
  for size in range(2, 300, 7):
    with pytest.raises(images.ImageError):
      images.to_decodable(content[:size])


@pytest.mark.parametrize('make', [images.to_decodable, images.to_stored])
def test_files_of_more_bytes_than_any_image_are_refused(make):
  images.check_bytes(images.MAX_BYTES)
  with pytest.raises(images.ImageError, match='at most 715827880 bytes'):
    images.check_bytes(images.MAX_BYTES + 1)
  with pytest.raises(images.ImageError, match='at most 89478485 pixels'):
    make(image_files.bomb())


def test_a_jpeg_that_declares_more_than_its_bytes_can_hold_is_refused():
  content = image_files.jpeg()
  frame = content.index(b'\xff\xc0')
  size = struct.pack('>HH', 9000, 9900)
  content = content[: frame + 5] + size + content[frame + 9 :]
  for make in (
    *(images.to_jpeg, images.to_pixels, images.to_stored, images.to_decodable),
  ):
    with pytest.raises(images.ImageError, match='bytes for 9900 x 9000'):
      make(content)


@pytest.mark.parametrize('options', [{}, {'progressive': True}])
@pytest.mark.parametrize('mode', ['RGB', 'L'])
def test_a_blank_jpeg_is_accepted(mode, options):
  blank = Image.new(mode, (2000, 1600))
  content = image_files.saved(blank, 'JPEG', optimize=True, **options)
  assert images.to_jpeg(content).content == content


def test_what_is_stored_as_pixels_is_decoded_accurately():
  rough = np.random.default_rng(1).integers(0, 256, [64, 64, 3])
  content = image_files.saved(
    Image.fromarray(rough.astype(np.uint8)), 'JPEG', quality=100, subsampling=0
  )
  stored = np.frombuffer(images.to_pixels(content).content, np.uint8)
  for method, largest in (('INTEGER_ACCURATE', 1), ('INTEGER_FAST', 99)):
    decoded = tf.io.decode_jpeg(content, dct_method=method).numpy().reshape(-1)
    difference = np.abs(decoded.astype(int) - stored)
    assert difference.max() <= largest
  # The last, which trainers use, is worth telling apart.
  assert difference.max() > 10


def test_trainers_do_not_wrap_white_to_black_in_stored_images():
  rough = np.random.default_rng(0).random([256, 256]) < 0.5
  page = Image.fromarray(rough.astype(np.uint8) * 255)
  found = pixels_of(images.to_jpeg(image_files.saved(page, 'PNG')))
  difference = found.astype(int) - np.asarray(page)[..., None]
  assert np.abs(difference).max() < 127
