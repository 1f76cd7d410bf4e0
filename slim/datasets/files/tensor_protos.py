"""Records of Caffe2's image databases: image and label as TensorProtos.

This module defines at run time the parts of the messages that images need.
Field numbers and types are those of Caffe2's `caffe2.proto`,
https://github.com/facebookarchive/caffe2. Other fields are ignored.
"""

import functools
import math
from typing import Any
from typing import NamedTuple

import numpy as np
from google.protobuf import descriptor_pb2
from google.protobuf import descriptor_pool
from google.protobuf import message
from google.protobuf import message_factory

from slim import errors

_refused = functools.partial(
  errors.refusal,
  'Record',
  remedy="Create the database again, with Caffe2's make_image_db or with "
  '`terngrad convert database`.',
)

_unfit = functools.partial(
  errors.refusal,
  'Image',
  remedy='Correct it in the data set, or leave it out.',
)

RAW = b'RAW'

_MAX_LABEL = 2**31 - 1

# TensorProto.DataType
_INT32, _BYTE, _STRING, _INT64 = 2, 3, 4, 10

_Field = descriptor_pb2.FieldDescriptorProto
# Name, number, type, label and whether it is packed. (data_type is an enum,
# which has the wire format of int32.)
_FIELDS = (
  ('dims', 1, _Field.TYPE_INT64, _Field.LABEL_REPEATED, False),
  ('data_type', 2, _Field.TYPE_INT32, _Field.LABEL_OPTIONAL, False),
  ('int32_data', 4, _Field.TYPE_INT32, _Field.LABEL_REPEATED, True),
  ('byte_data', 5, _Field.TYPE_BYTES, _Field.LABEL_OPTIONAL, False),
  ('string_data', 6, _Field.TYPE_BYTES, _Field.LABEL_REPEATED, False),
  ('int64_data', 10, _Field.TYPE_INT64, _Field.LABEL_REPEATED, True),
)


class Image(NamedTuple):
  """A record.

  Attributes:
    encoded: content of the image file, or pixels.
    image_format: b'RAW' for pixels, RGB, uint8 [height, width, 3]; else b''.
    size: height and width in pixels; (-1, -1) for files.
    label: label of the class.
  """

  encoded: bytes
  image_format: bytes
  size: tuple[int, int]
  label: int


def encode(image: Image) -> bytes:
  """Serializes an image as Caffe2's make_image_db does.

  Args:
    image: the image; pixels are written in OpenCV's order: blue, green, red.

  Returns:
    A serialized TensorProtos.

  Raises:
    slim.errors.DataError: the label is below 0 or not an int32, or the pixels
      do not have the size.
  """
  if not 0 <= image.label <= _MAX_LABEL:
    raise _unfit(f'a label from 0 to {_MAX_LABEL}', f'{image.label}')
  protos = _TENSOR_PROTOS()
  data = protos.protos.add()
  if image.image_format == RAW:
    if min(image.size) < 1 or math.prod(image.size) * 3 != len(image.encoded):
      raise _unfit(
        'pixels [height, width, 3]',
        f'{len(image.encoded)} bytes and the size {image.size}',
      )
    data.data_type = _BYTE
    data.dims.extend([*image.size, 3])
    data.byte_data = _swapped(image.encoded)
  else:
    data.data_type = _STRING
    data.dims.append(1)
    data.string_data.append(image.encoded)
  label = protos.protos.add()
  label.data_type = _INT32
  label.dims.append(1)
  label.int32_data.append(image.label)
  # A fixed order of the fields, so that equal images give equal databases.
  return protos.SerializeToString(deterministic=True)


def decode(serialized: bytes) -> Image:
  """Parses a record.

  Args:
    serialized: a TensorProtos. Tensors after image and label are ignored.

  Returns:
    The image; pixels with one channel are repeated to three.

  Raises:
    slim.errors.DataError: the record is invalid.
  """
  protos = _TENSOR_PROTOS()
  try:
    protos.ParseFromString(serialized)
  except message.DecodeError as error:
    raise _refused('serialized TensorProtos', f'"{error}"') from error
  if len(protos.protos) < 2:
    raise _refused('an image and a label', f'{len(protos.protos)} tensors')
  data, label = protos.protos[0], protos.protos[1]
  return Image(*_content(data), _label(label))


def _content(data: Any) -> tuple[bytes, bytes, tuple[int, int]]:
  """Returns (encoded, format, size) of the image tensor."""
  if data.data_type == _STRING:
    if len(data.string_data) != 1:
      raise _refused('one image file', f'{len(data.string_data)}')
    return data.string_data[0], b'', (-1, -1)
  if data.data_type != _BYTE:
    raise _refused(
      f'an image of type {_STRING} (a file) or {_BYTE} (pixels)',
      f'type {data.data_type}',
    )
  dims = tuple(data.dims)
  if (
    len(dims) not in (2, 3) or min(dims) < 1 or dims[2:] not in ((), (1,), (3,))
  ):
    raise _refused(
      'pixels [height, width] or [height, width, 1 or 3]', f'{dims}'
    )
  if math.prod(dims) != len(data.byte_data):
    raise _refused(f'pixels {dims}', f'{len(data.byte_data)} bytes')
  if dims[2:] == (3,):
    return _swapped(data.byte_data), RAW, dims[:2]
  grey = np.frombuffer(data.byte_data, np.uint8)
  return np.repeat(grey, 3).tobytes(), RAW, dims[:2]


def _label(tensor: Any) -> int:
  values = [*tensor.int32_data, *tensor.int64_data]
  if tensor.data_type not in (_INT32, _INT64) or len(values) != 1:
    raise _refused(
      f'one label of type {_INT32} or {_INT64}',
      f'{len(values)} of type {tensor.data_type}',
    )
  return values[0]


def _swapped(pixels: bytes) -> bytes:
  """Swaps the red and blue channels of pixels."""
  return np.frombuffer(pixels, np.uint8).reshape(-1, 3)[:, ::-1].tobytes()


def _message_class() -> type[message.Message]:
  file = descriptor_pb2.FileDescriptorProto(
    name='terngrad_image_db.proto', package='caffe2', syntax='proto2'
  )
  tensor = file.message_type.add(name='TensorProto')
  for name, number, kind, label, is_packed in _FIELDS:
    field = tensor.field.add(name=name, number=number, type=kind, label=label)
    if is_packed:
      field.options.packed = True
  file.message_type.add(name='TensorProtos').field.add(
    name='protos',
    number=1,
    type=_Field.TYPE_MESSAGE,
    type_name='.caffe2.TensorProto',
    label=_Field.LABEL_REPEATED,
  )
  # A separate pool: if Caffe2 is installed, the default pool has these names.
  pool = descriptor_pool.DescriptorPool()
  pool.Add(file)
  return message_factory.GetMessageClass(
    pool.FindMessageTypeByName('caffe2.TensorProtos')
  )


_TENSOR_PROTOS = _message_class()
