"""Makes small archives in the layouts of their sites, for the tests of slim."""

import io
import pickle
import tarfile

import numpy as np

CIFAR_CLASSES = (
  'airplane automobile bird cat deer dog frog horse ship truck'.split()
)


def member(name, content=b'', kind=tarfile.REGTYPE, target=''):
  info = tarfile.TarInfo(name)
  info.size = len(content)
  info.type = kind
  info.linkname = target
  return info, io.BytesIO(content)


def tar(members, mode='w'):
  """Returns a tar of (TarInfo, file) pairs."""
  buffer = io.BytesIO()
  with tarfile.open(fileobj=buffer, mode=mode) as archive:
    for info, file in members:
      archive.addfile(info, file)
  return buffer.getvalue()


def cifar(count=4):
  """Returns {batch: (uint8 [count, 32, 32, 3], uint8 [count])}."""
  random = np.random.default_rng(3)
  batches = {}
  for name in [*(f'data_batch_{i}' for i in range(1, 6)), 'test_batch']:
    images = random.integers(0, 256, [count, 32, 32, 3]).astype(np.uint8)
    batches[name] = images, random.integers(0, 10, count).astype(np.uint8)
  return batches


def _planes(images):
  """Red, then green, then blue, row by row."""
  return images.transpose(0, 3, 1, 2).reshape(len(images), 3072)


def cifar_binary(batches):
  members = [
    member(
      f'cifar-10-batches-bin/{name}.bin',
      np.concatenate([labels[:, None], _planes(images)], axis=1).tobytes(),
    )
    for name, (images, labels) in batches.items()
  ]
  return tar(members, 'w:gz')


def cifar_python(batches, protocol=2, **changes):
  """As `cifar_binary`; changes are pickles by name of the batch."""
  members = []
  for name, (images, labels) in batches.items():
    content = pickle.dumps(
      {b'data': _planes(images), b'labels': labels.tolist()}, protocol
    )
    members.append(
      member(f'cifar-10-batches-py/{name}', changes.get(name, content))
    )
  return tar(members, 'w:gz')
