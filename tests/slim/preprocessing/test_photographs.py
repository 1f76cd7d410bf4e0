import numpy as np
import pytest
import tensorflow as tf

from slim.preprocessing import photographs
from tests.slim import photograph_files

PIXELS = photograph_files.pixels(37, 53)
JPEG = photograph_files.jpeg(PIXELS)
# Content, format, and the pixels that plain TensorFlow decodes.
STORED = {
  'jpeg': (
    JPEG,
    b'JPEG',
    tf.io.decode_jpeg(JPEG, dct_method='INTEGER_FAST').numpy(),
  ),
  # As ImageNet has it: the name is no proof.
  'png in disguise': (tf.io.encode_png(PIXELS).numpy(), b'JPEG', PIXELS),
  'raw': (PIXELS.tobytes(), b'RAW', PIXELS),
}


def of(encoded, image_format, size=(37, 53), channels=3):
  return photographs.from_encoded(
    tf.convert_to_tensor(encoded),
    image_format=tf.constant(image_format),
    size=tf.constant(size),
    boxes=tf.zeros([0, 4]),
    channels=channels,
  )


@pytest.mark.parametrize('kind', STORED)
def test_a_crop_is_that_part_of_the_whole(kind):
  encoded, image_format, expected = STORED[kind]
  photograph = of(encoded, image_format)
  np.testing.assert_array_equal(photograph.size, [37, 53])
  np.testing.assert_array_equal(photograph.whole(), expected)
  for y, x, height, width in ((0, 0, 1, 1), (5, 7, 11, 13), (36, 0, 1, 53)):
    np.testing.assert_array_equal(
      photograph.crop(tf.constant([y, x, height, width])),
      expected[y : y + height, x : x + width],
    )


def test_raw_pixels_that_begin_like_a_jpeg_stay_pixels():
  pixels = PIXELS.copy()
  pixels[0, 0] = (0xFF, 0xD8, 0xFF)
  photograph = of(pixels.tobytes(), b'RAW')
  np.testing.assert_array_equal(photograph.whole(), pixels)


def test_grey_jpeg_becomes_rgb():
  grey = PIXELS[..., :1]
  photograph = of(tf.io.encode_jpeg(grey, quality=100).numpy(), b'')
  assert photograph.whole().shape == (37, 53, 3)


def test_one_channel_is_delivered_on_request():
  png = tf.io.encode_png(PIXELS[..., :1]).numpy()
  photograph = of(png, b'png', channels=1)
  np.testing.assert_array_equal(photograph.whole(), PIXELS[..., :1])


@pytest.mark.parametrize(
  ('encoded', 'image_format'),
  [
    (b'', b'JPEG'),
    (b'no image', b'JPEG'),
    (JPEG[:20], b'JPEG'),
    (PIXELS.tobytes()[:-1], b'RAW'),
  ],
)
def test_invalid_images_are_refused(encoded, image_format):
  with pytest.raises(tf.errors.InvalidArgumentError):
    of(encoded, image_format).whole()


@pytest.mark.parametrize('kind', STORED)
def test_static_shapes_are_known_in_a_tf_data_stage(kind):
  encoded, image_format, expected = STORED[kind]

  @tf.function
  def cut(encoded):
    pixels = of(encoded, image_format).crop(tf.constant([1, 2, 3, 4]))
    assert pixels.shape.as_list() == [None, None, 3]
    return pixels

  np.testing.assert_array_equal(cut(tf.constant(encoded)), expected[1:4, 2:6])


@pytest.mark.parametrize(
  'shape', [(1, 1), (9, 30), (22, 23), (23, 23), (80, 70)]
)
def test_resizing_is_tensorflow_s_for_every_size_and_type(shape):
  # To 16x16: windows of more than 512 pixels stay uint8.
  pixels = tf.constant(photograph_files.pixels(*shape))
  expected = tf.image.resize(pixels, [16, 16])
  for source in (pixels, tf.cast(pixels, tf.float32)):
    resized = photographs.resize(source, 16)
    assert resized.dtype == tf.float32
    np.testing.assert_array_equal(resized, expected)


def test_flip_mirrors_left_and_right():
  np.testing.assert_array_equal(
    photographs.flip(tf.constant(PIXELS), tf.constant(True)), PIXELS[:, ::-1]
  )
  np.testing.assert_array_equal(
    photographs.flip(tf.constant(PIXELS), tf.constant(False)), PIXELS
  )
