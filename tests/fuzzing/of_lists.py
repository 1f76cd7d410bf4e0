"""Lists that come with data sets."""

import json
import re

from slim import errors
from slim.datasets import labels as label_files
from slim.datasets.photographs import imagenet_boxes
from slim.datasets.records import counts as record_counts
from slim.datasets.records import manifest
from slim.datasets.records import shard_manifest
from tests.fuzzing.target import Target
from tests.slim import record_files

_REFUSED = (errors.DataError,)


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
    content = content.replace(b'CTIME', b'%d' % status.st_ctime_ns)
    known.write_bytes(content.replace(b'TIME', b'%d' % status.st_mtime_ns))
    record_counts.count([shard])

  entry = {
    'train-00000-of-00001': {
      'size': 'SIZE',
      'mtime_ns': 'TIME',
      'ctime_ns': 'CTIME',
      'num_examples': 2,
    }
  }
  text = json.dumps({'format': 1, 'files': entry})
  return Target(
    parse,
    [re.sub('"(SIZE|TIME|CTIME)"', r'\1', text).encode()],
    _REFUSED,
    ['slim.datasets.records.counts'],
    (*_JSON_WORDS, b'"num_examples": ', b'"size": ', b'SIZE', b'TIME'),
  )
