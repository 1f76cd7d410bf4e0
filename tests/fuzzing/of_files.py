"""Archives, pickles and lists that come with data sets."""

import gzip
import io
import json
import pickle
import struct
import tarfile

import numpy as np

from slim import errors
from slim.datasets import labels as label_files
from slim.datasets.files import archives
from slim.datasets.files import idx as idx_files
from slim.datasets.files import pickles
from slim.datasets.photographs import imagenet_boxes
from slim.datasets.records import counts as record_counts
from slim.datasets.records import manifest
from slim.datasets.records import shard_manifest
from slim.datasets.small_images import arrays
from slim.datasets.small_images import cifar10_source
from tests.fuzzing import mutation
from tests.fuzzing.target import Target
from tests.slim import archives_made
from tests.slim import mnist_files
from tests.slim import record_files

_REFUSED = (errors.DataError,)
_BLOCK = 512
_CHECKSUM = slice(148, 156)


# --- tar


def _tars():
  """Plain tars of both formats, with long names, folders and tars in them."""
  members = [
    archives_made.member('a/one.txt', b'one' * 300),
    archives_made.member('a', kind=tarfile.DIRTYPE),
    archives_made.member('b' * 90 + '/' + 'c' * 120, b'two'),
    archives_made.member('empty'),
  ]
  made = []
  for tar_format in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
    buffer = io.BytesIO()
    with tarfile.open(
      fileobj=buffer, mode='w', format=tar_format, pax_headers={'comment': 'x'}
    ) as tar:
      for info, file in members:
        file.seek(0)
        tar.addfile(info, file)
    made.append(buffer.getvalue())
  return made


def _with_sums(random, content):
  """The tar with the checksums that its headers should have."""
  del random
  changed = bytearray(content)
  for begin in range(0, len(changed) - _BLOCK + 1, _BLOCK):
    block = changed[begin : begin + _BLOCK]
    if block[257:262] == b'ustar':
      block[_CHECKSUM] = b' ' * 8
      block[_CHECKSUM] = b'%06o\0 ' % sum(block)
      changed[begin : begin + _BLOCK] = block
  return bytes(changed)


_TAR_WORDS = (
  *(b'ustar\x0000', b'ustar  \0', b'path=', b'size=', b'20 path=../x\n'),
  *(b'GNU.sparse.major=1\n', b'22 GNU.sparse.size=9\n', b'00000000017\0'),
  *(
    b'\x80\0\0\0\0\0\0\0\0\0\0\xff',
    b'\xff' * 12,
    *b'0 1 2 3 5 6 L K x g S'.split(),
  ),
)


def tar():
  """A plain tar, of which every file is read."""

  def parse(content, folder):
    path = folder / 'a.tar'
    path.write_bytes(content)
    for member in archives.index(path):
      try:
        member.read()
      except OSError:  # documented: cut short
        pass

  return Target(
    parse,
    _tars(),
    _REFUSED,
    ['slim.datasets.files.archives', 'tarfile'],
    _TAR_WORDS,
    _with_sums,
  )


def tar_within():
  """A plain tar within a tar."""

  def parse(content, folder):
    path = folder / 'a.tar'
    path.write_bytes(bytes(_BLOCK) + content + b'behind' * 100)
    whole = archives.Member('in.tar', str(path), _BLOCK, len(content))
    for member in archives.index_within(whole):
      if member.offset + member.size > _BLOCK + len(content):
        raise AssertionError('a member beyond the end')
      member.read()

  return tar()._replace(parse=parse)


def tar_stream():
  """A tar that is read in one pass, compressed or not."""
  limit = 1 << 22

  def parse(content, folder):
    path = folder / 'a.tar'
    path.write_bytes(content)
    total = 0
    for _, one in archives.files(path, limit, lambda name: True):
      total += len(one)
    if total > limit:
      raise AssertionError('more than the limit')

  def repair(random, content):
    if content[:2] != b'\x1f\x8b':
      return _with_sums(random, content)
    return gzip.compress(
      _with_sums(
        random, mutation.mutated(random, random.choice(tars), tars, _TAR_WORDS)
      ),
      1,
    )

  tars = _tars()
  return tar()._replace(
    parse=parse,
    seeds=[*tars, *(gzip.compress(t) for t in tars)],
    repair=repair,
  )


# --- pickles


def _batch(protocol, **changes):
  value = {
    b'batch_label': b'training batch 1 of 5',
    b'labels': [3, 7],
    b'data': np.arange(2 * 3072, dtype=np.int64)
    .astype(np.uint8)
    .reshape(2, -1),
    b'filenames': [b'a.png', b'b.png'],
    **changes,
  }
  return pickle.dumps(value, protocol)


_PICKLE_WORDS = (
  *(b'cos\nsystem\n', b'cnumpy\nndarray\n', b'cnumpy\ndtype\n', b'}', b']'),
  *(b'K\x05', b'\x8c\x04data', b'U\x06labels', b'q\x00', b'h\x00', b'\x94'),
  *(b'(', b't', b'\x85', b'R', b'b', b'.', b'\x81', b'G', b'J\xff\xff\xff\xff'),
  *(b'\x8a\x08', b'r\xff\xff\xff\x0f', b'C\x04abcd', b's', b'u', b'a', b'e'),
)


def pickled():
  """A pickle of a batch of CIFAR."""

  def parse(content, folder):
    del folder
    pickles.load(content, 'batch')

  seeds = [_batch(protocol) for protocol in (1, 2, 3, 4)]
  seeds += [pickle.dumps([1.5, None, True, 'x', 2**70], 2)]
  return Target(
    parse,
    seeds,
    _REFUSED,
    ['slim.datasets.files.pickles'],
    _PICKLE_WORDS,
    # What reads it may take a dict of 2**20 operations.
    mebibytes=128,
  )


def cifar_python():
  """An archive of CIFAR-10, of whose batches one is made up."""

  def parse(content, folder):
    whole = archives_made.cifar_python(made, data_batch_2=content)
    (folder / cifar10_source.PYTHON).write_bytes(whole)
    cifar10_source.from_python(
      arrays.Request(source_dir=str(folder), verify_checksums=False)
    )

  made = archives_made.cifar(2)
  return pickled()._replace(
    parse=parse,
    seeds=[_batch(protocol) for protocol in (1, 2, 3, 4)],
    modules=[
      'slim.datasets.files.pickles',
      'slim.datasets.small_images.cifar10_source',
      'slim.datasets.small_images.arrays',
    ],
  )


# --- idx


def idx():
  """Images and labels as idx files."""

  def parse(content, folder):
    path = folder / 'a-ubyte'
    path.write_bytes(content)
    shape = () if content[3:4] == b'\1' else (28, 28)
    idx_files.read(path, shape)

  made = mnist_files.arrays(3, 1)
  return Target(
    parse,
    [mnist_files.idx_bytes(made.images), mnist_files.idx_bytes(made.labels)],
    _REFUSED,
    ['slim.datasets.files.idx'],
    (struct.pack('>I', 0x803), struct.pack('>I', 28), struct.pack('>I', 10**6)),
  )


def idx_gzip():
  """Compressed idx files."""
  plain = idx()

  def parse(content, folder):
    path = folder / 'a-ubyte.gz'
    path.write_bytes(content)
    idx_files.read(path, (28, 28))

  def repair(random, content):
    del content
    return gzip.compress(
      mutation.mutated(random, plain.seeds[0], plain.seeds, plain.words), 1
    )

  return plain._replace(
    parse=parse, seeds=[gzip.compress(plain.seeds[0])], repair=repair
  )


# --- lists


_ANNOTATION = b"""<annotation><folder>n01</folder>
<size><width>500</width><height>333</height><depth>3</depth></size>
<object><name>n01</name><bndbox><xmin>19</xmin><ymin>16</ymin>
<xmax>450</xmax><ymax>320</ymax></bndbox></object>
<object><name>n02</name><bndbox><xmin>5</xmin><ymin>7</ymin><xmax>5</xmax>
<ymax>9</ymax></bndbox></object></annotation>"""


def boxes():
  """An annotation of ImageNet."""

  def parse(content, folder):
    (folder / 'n01').mkdir(exist_ok=True)
    (folder / 'n01' / 'n01_1.xml').write_bytes(content)
    imagenet_boxes.process(folder, ['n01', 'n02'])

  return Target(
    parse,
    [_ANNOTATION],
    _REFUSED,
    ['slim.datasets.photographs.imagenet_boxes'],
    (
      *(
        b'<object>',
        b'</object>',
        b'<bndbox/>',
        b'<size/>',
        b'<width>0</width>',
      ),
      *(
        b'<!DOCTYPE a [<!ENTITY b "c">]>',
        b'&b;',
        b'&#0;',
        b'<?xml version="1.0"',
      ),
      *(b'encoding="utf-16"?>', b'<![CDATA[', b']]>', b'<!--'),
    ),
  )


def box_list():
  """The list of boxes of a whole data set."""

  def parse(content, folder):
    path = folder / 'boxes.csv'
    path.write_bytes(content)
    imagenet_boxes.read(path)

  return Target(
    parse,
    [b'a.JPEG,0.1000,0.2000,0.9000,1.0000\nb.JPEG,0.0,0.0,1.0,1.0\n'],
    _REFUSED,
    ['slim.datasets.photographs.imagenet_boxes'],
    (b'a.JPEG,', b'0.5,', b',0,0,1,1\n'),
  )


def labels():
  """labels.txt."""

  def parse(content, folder):
    (folder / 'labels.txt').write_bytes(content)
    label_files.read(folder, first_label=1)

  return Target(
    parse,
    [b'0:background\n1:cat\n2:dog\n', b'cat\ndog\n', b'\xef\xbb\xbf0:a\r\n'],
    _REFUSED,
    ['slim.datasets.labels'],
    (b'3:', b'\n4:a', b'000000001:b\n'),
  )


_SHARD = {
  'file': 'train-00000-of-00001',
  'num_examples': 2,
  'size': 126,
  'sha256': '0123456789abcdef' * 4,
}
_MANIFEST = {
  'format': 1,
  'dataset': 'mnist',
  'num_classes': 10,
  'labels': {'0': 'zero', '1': 'one'},
  'splits': {'train': {'num_examples': 2, 'shards': [_SHARD]}},
  'features': {'image/encoded': 'bytes_list'},
  'source': 'made up',
  'fingerprint': 'ab',
  'skipped': ['a.jpg'],
}
_JSON_WORDS = (
  *(b'null', b'true', b'[]', b'{}', b'-1', b'1e400', b'NaN', b'"\\ud800"'),
  *(b'"\\u0000"', b'"..":', b'{"":', b',', b'":"'),
)


def shards_json():
  """shards.json, and what is done with what it says."""

  def parse(content, folder):
    (folder / 'shards.json').write_bytes(content)
    found = manifest.read(folder)
    _ = found.label_range, found.counts
    for split in found.splits.values():
      for shard in split.shards:
        shard_manifest.has_content(folder, shard)

  return Target(
    parse,
    [
      json.dumps(_MANIFEST).encode(),
      json.dumps({**_MANIFEST, 'labels': None}, indent=1).encode(),
    ],
    _REFUSED,
    ['slim.datasets.records.manifest'],
    (*_JSON_WORDS, *(f'"{key}"'.encode() for key in (*_MANIFEST, *_SHARD))),
  )


def counts():
  """The numbers of records that were counted before."""

  def parse(content, folder):
    shard = folder / 'train-00000-of-00001'
    if not shard.exists():
      record_files.write(shard, [b'one', b'two'])
    status = shard.stat()
    known = folder / record_counts.FILE_NAME
    content = content.replace(b'SIZE', b'%d' % status.st_size)
    known.write_bytes(content.replace(b'TIME', b'%d' % status.st_mtime_ns))
    record_counts.count([shard])

  entry = {
    'train-00000-of-00001': {
      'size': 'SIZE',
      'mtime_ns': 'TIME',
      'num_examples': 2,
    }
  }
  text = json.dumps({'format': 1, 'files': entry})
  return Target(
    parse,
    [text.replace('"SIZE"', 'SIZE').replace('"TIME"', 'TIME').encode()],
    _REFUSED,
    ['slim.datasets.records.counts'],
    (*_JSON_WORDS, b'"num_examples": ', b'"size": ', b'SIZE', b'TIME'),
  )
