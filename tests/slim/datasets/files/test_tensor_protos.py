import numpy as np
import pytest
from google.protobuf import descriptor_pool

from slim import errors
from slim.datasets.files import tensor_protos

# By hand, from caffe2.proto: a tag is number * 8 + wire type (0: varint,
# 2: bytes); TensorProtos.protos has number 1.
FILE = (
  b'\x0a\x0b'  # protos, 11 bytes
  b'\x08\x01'  # dims 1: 1, not packed
  b'\x10\x04'  # data_type 2: 4, STRING
  b'\x32\x05jpeg\x00'  # string_data 6
  b'\x0a\x07'  # protos, 7 bytes
  b'\x08\x01'  # dims: 1
  b'\x10\x02'  # data_type: 2, INT32
  b'\x22\x01\x07'  # int32_data 4, packed: 7
)
PIXELS = (
  b'\x0a\x10'  # protos, 16 bytes
  b'\x08\x01\x08\x02\x08\x03'  # dims: 1, 2, 3
  b'\x10\x03'  # data_type: 3, BYTE
  b'\x2a\x06\x01\x02\x03\x04\x05\x06'  # byte_data 5: two pixels, BGR
  b'\x0a\x07\x08\x01\x10\x02\x22\x01\x07'
)


def record(*tensors):
  """Serializes tensors, given by their fields' bytes."""
  return b''.join(b'\x0a' + bytes([len(tensor)]) + tensor for tensor in tensors)


LABEL = b'\x08\x01\x10\x02\x22\x01\x07'


def test_file_is_written_as_caffe2_writes_it():
  image = tensor_protos.Image(b'jpeg\x00', b'', (-1, -1), 7)
  assert tensor_protos.encode(image) == FILE
  assert tensor_protos.decode(FILE) == image


def test_pixels_are_stored_blue_first():
  rgb = bytes([3, 2, 1, 6, 5, 4])
  image = tensor_protos.Image(rgb, b'RAW', (1, 2), 7)
  assert tensor_protos.encode(image) == PIXELS
  assert tensor_protos.decode(PIXELS) == image


@pytest.mark.parametrize(
  'dims', [b'\x08\x01\x08\x02', b'\x08\x01\x08\x02\x08\x01']
)
def test_grey_pixels_get_three_channels(dims):
  found = tensor_protos.decode(
    record(dims + b'\x10\x03\x2a\x02\x05\x09', LABEL)
  )
  assert found == (bytes([5, 5, 5, 9, 9, 9]), b'RAW', (1, 2), 7)


@pytest.mark.parametrize(
  'label',
  [
    b'\x10\x02\x22\x01\x07',  # without dims
    b'\x10\x02\x20\x07',  # not packed, as older writers do
    b'\x10\x0a\x52\x01\x07',  # int64_data
  ],
)
def test_labels_of_other_writers_are_read(label):
  image = b'\x08\x01\x10\x04\x32\x04jpeg'
  assert tensor_protos.decode(record(image, label)).label == 7


def test_other_fields_and_tensors_are_ignored():
  image = b'\x08\x01\x10\x04\x32\x04jpeg\x3a\x04name'  # name 7
  found = tensor_protos.decode(record(image, LABEL, LABEL))
  assert found == (b'jpeg', b'', (-1, -1), 7)


STRING = b'\x08\x01\x10\x04\x32\x04jpeg'


@pytest.mark.parametrize(
  ('serialized', 'message'),
  [
    (b'\xff', 'expected serialized TensorProtos'),
    (FILE[:-1], 'expected serialized TensorProtos'),
    (b'', 'expected an image and a label; received 0 tensors'),
    (record(STRING), 'received 1 tensors'),
    (record(b'\x10\x04', LABEL), 'expected one image file; received 0'),
    (record(b'\x10\x01', LABEL), 'an image of type 4.*received type 1'),
    (record(b'\x10\x03', LABEL), r'expected pixels .*received \(\)'),
    (
      record(b'\x08\x01\x08\x02\x08\x04\x10\x03', LABEL),
      r'received \(1, 2, 4\)',
    ),
    (
      record(b'\x08\x00\x08\x02\x10\x03', LABEL),
      r'received \(0, 2\)',
    ),
    (
      record(b'\x08\x01\x08\x02\x10\x03\x2a\x01\x05', LABEL),
      r'expected pixels \(1, 2\); received 1 bytes',
    ),
    # 2^40 pixels are not allocated.
    (
      record(b'\x08\x80\x80\x40\x08\x80\x80\x40\x10\x03\x2a\x01\x05', LABEL),
      'received 1 bytes',
    ),
    (record(STRING, b'\x10\x02'), 'expected one label.*received 0 of type 2'),
    (record(STRING, b'\x10\x01\x22\x01\x07'), 'received 1 of type 1'),
    (record(STRING, b'\x10\x02\x22\x02\x07\x08'), 'received 2 of type 2'),
  ],
)
def test_records_without_an_image_are_refused(serialized, message):
  with pytest.raises(errors.DataError, match=message):
    tensor_protos.decode(serialized)


def test_names_of_messages_stay_free_for_caffe2():
  with pytest.raises(KeyError):
    descriptor_pool.Default().FindMessageTypeByName('caffe2.TensorProtos')


def test_large_pixels_come_back():
  rgb = np.random.default_rng(0).integers(0, 256, [9, 5, 3], np.uint8).tobytes()
  image = tensor_protos.Image(rgb, b'RAW', (9, 5), 2**31 - 1)
  assert tensor_protos.decode(tensor_protos.encode(image)) == image
