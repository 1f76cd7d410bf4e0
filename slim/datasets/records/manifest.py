"""Reads `shards.json`, a converter's description of the files it wrote.

The file is validated, because data sets may come from untrusted sources.
"""

import hashlib
import json
import os
import pathlib
import re
import types
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

from slim import errors
from slim.datasets.records import label_lines
from slim.datasets.records import text_facts

FILE_NAME = 'shards.json'

FORMAT = 1
# The lists of a tf.train.Feature.
FEATURE_KINDS = ('bytes_list', 'int64_list', 'float_list')
_MAX_BYTES = 2**26  # far above ImageNet's file of about 200 KB
_MAX_COUNT = 2**53  # integers that every JSON parser represents exactly
_MAX_LABEL = 2**31 - 1
_MAX_NAME_BYTES = 255  # the limit of file systems
_SHA256 = re.compile('[0-9a-f]{64}')


class Shard(NamedTuple):
  """One file of a split.

  Attributes:
    file: file name without a folder.
    num_examples: number of records.
    size: size of the file in bytes.
    sha256: digest of the file, 64 hexadecimal digits.
  """

  file: str
  num_examples: int
  size: int
  sha256: str


class SplitEntry(NamedTuple):
  """A split in the manifest.

  Attributes:
    num_examples: number of examples in all shards, >= 1.
    shards: in the order of writing.
  """

  num_examples: int
  shards: tuple[Shard, ...]

  @property
  def digest(self) -> str:
    """Returns 16 hex digits, equal for equal shards in equal order."""
    digests = ''.join(shard.sha256 for shard in self.shards)
    return hashlib.sha256(digests.encode()).hexdigest()[:16]


class Manifest(NamedTuple):
  """The contents of a folder of shards.

  Attributes:
    dataset: name of the data set, such as 'cifar10'.
    num_classes: number of classes that the converter counted, >= 1.
    labels: name by label, or None. If label 0 is not a class, its name is
      'background'.
    splits: by name; a split lists its shards in the order of its examples.
    features: kind of each feature, one of `FEATURE_KINDS`, by key, equal in
      every example; empty if unknown.
    source: origin of the examples, for messages.
    fingerprint: equal for equal examples in equal order and shards; '' if
      the converter has none.
    skipped: unreadable files that were skipped.
    text: facts about a data set of text; None for images.
  """

  dataset: str
  num_classes: int
  labels: dict[int, str] | None
  splits: dict[str, SplitEntry]
  features: Mapping[str, str] = types.MappingProxyType({})
  source: str = ''
  fingerprint: str = ''
  skipped: tuple[str, ...] = ()
  text: text_facts.TextFacts | None = None

  @property
  def names(self) -> list[str]:
    """Returns the file names of all shards."""
    return [s.file for split in self.splits.values() for s in split.shards]

  @property
  def counts(self) -> dict[str, int]:
    """Returns the number of examples by split."""
    return {name: split.num_examples for name, split in self.splits.items()}

  @property
  def label_range(self) -> int:
    """Returns the number of logits needed: all labels are below it."""
    return max(self.num_classes, *(label + 1 for label in self.labels or [0]))


def read(data_dir: str | os.PathLike[str]) -> Manifest | None:
  """Reads `<data_dir>/shards.json`; ignores unknown keys.

  Args:
    data_dir: a folder filled by a converter.

  Returns:
    The manifest; None if the file does not exist.

  Raises:
    slim.errors.DataError: the file cannot be read or is invalid. The message
      names the location in the file.
  """
  path = pathlib.Path(data_dir) / FILE_NAME
  try:
    with open(path, 'rb') as file:
      content = file.read(_MAX_BYTES + 1)
  except FileNotFoundError:
    if path.is_symlink():
      raise _refused(path, '', 'a file', 'a broken symbolic link') from None
    return None
  except OSError as error:
    raise _refused(path, '', 'a readable file', error.strerror) from error
  if len(content) > _MAX_BYTES:
    raise _refused(path, '', f'at most {_MAX_BYTES} bytes', 'more')
  try:
    # RecursionError: thousands of opening brackets.
    tree = json.loads(content)
  except (ValueError, RecursionError) as error:
    raise _refused(path, '', 'JSON', f'"{error}"') from error
  return _manifest(_Node(path, '', tree))


class _Node(NamedTuple):
  """A value in the file, and its location."""

  path: pathlib.Path
  where: str
  value: Any

  def get(self, key: str, *default: Any) -> '_Node':
    where = f'{self.where}.{key}' if self.where else key
    table = self.table()
    if key not in table and not default:
      raise _refused(self.path, where, 'a value', 'none')
    return _Node(self.path, where, table.get(key, *default))

  def table(self) -> dict[str, Any]:
    return self._typed(dict, 'an object')

  def items(self) -> list['_Node']:
    values = self._typed(list, 'a list')
    return [
      _Node(self.path, f'{self.where}[{i}]', v) for i, v in enumerate(values)
    ]

  def text(self) -> str:
    text = self._typed(str, 'a string')
    # JSON can spell lone surrogates, which no file can hold.
    if re.search('[\ud800-\udfff]', text):
      raise self.refused('a string without lone surrogates')
    return text

  def whole(self, lowest: int, highest: int = _MAX_COUNT) -> int:
    expected = f'a whole number from {lowest} to {highest}'
    # bool is a subclass of int.
    if type(self.value) is not int or not lowest <= self.value <= highest:
      raise self.refused(expected)
    return self.value

  def _typed(self, kind: type, expected: str) -> Any:
    if not isinstance(self.value, kind):
      raise self.refused(expected)
    return self.value

  def refused(self, expected: str) -> errors.DataError:
    received = repr(self.value)
    if len(received) > 60:
      received = f'{received[:60]}...'
    return _refused(self.path, self.where, expected, received)


def _manifest(node: _Node) -> Manifest:
  node.get('format').whole(FORMAT, FORMAT)
  splits = node.get('splits')
  return Manifest(
    dataset=node.get('dataset').text(),
    num_classes=node.get('num_classes').whole(1, _MAX_LABEL),
    labels=_labels(node.get('labels')),
    splits={name: _split(splits.get(name)) for name in splits.table()},
    features=_kinds(node.get('features', {})),
    source=node.get('source', '').text(),
    fingerprint=node.get('fingerprint', '').text(),
    skipped=tuple(item.text() for item in node.get('skipped', []).items()),
    text=_text(node.get('text', None), node.get('splits')),
  )


def _text(node: _Node, splits: _Node) -> text_facts.TextFacts | None:
  if node.value is None:
    return None
  sizes = node.get('num_bytes')
  return text_facts.TextFacts(
    digest=node.get('digest').text(),
    sequence_length=node.get('sequence_length').whole(1, _MAX_LABEL),
    num_bytes={name: sizes.get(name).whole(1) for name in splits.table()},
    tokenizer=node.get('tokenizer').text(),
  )


def _kinds(node: _Node) -> dict[str, str]:
  kinds = {}
  for key in node.table():
    kinds[key] = node.get(key).text()
    if kinds[key] not in FEATURE_KINDS:
      raise node.get(key).refused(f'one of {", ".join(FEATURE_KINDS)}')
  return kinds


def _labels(node: _Node) -> dict[int, str] | None:
  if node.value is None:
    return None
  labels = {}
  for key in node.table():
    # int() would also take signs, spaces and other alphabets' digits.
    if not re.fullmatch('0|[1-9][0-9]{0,9}', key) or int(key) >= _MAX_LABEL:
      raise _refused(
        node.path, node.where, f'labels from 0 to {_MAX_LABEL - 1}', repr(key)
      )
    name = node.get(key)
    # As when it was written: a name may end with spaces, and with nothing else
    # that a line of labels.txt cannot hold.
    if problem := label_lines.find_problem(name.text().rstrip(' ')):
      raise name.refused(f'a name that can be a line of labels.txt ({problem})')
    labels[int(key)] = name.value
  return labels


def _split(node: _Node) -> SplitEntry:
  shards = tuple(_shard(item) for item in node.get('shards').items())
  total = node.get('num_examples')
  if len({shard.file for shard in shards}) != len(shards):
    raise node.get('shards').refused('every file once')
  if total.whole(1) != sum(shard.num_examples for shard in shards):
    raise total.refused("the sum of its shards' num_examples")
  return SplitEntry(total.value, shards)


def _shard(node: _Node) -> Shard:
  name = node.get('file')
  if (
    name.text() in ('', '.', '..')
    or re.search(r'[/\\\0]', name.value)
    or len(name.value.encode()) > _MAX_NAME_BYTES
  ):
    raise name.refused('the name of a file in this folder')
  digest = node.get('sha256')
  if not _SHA256.fullmatch(digest.text()):
    raise digest.refused('64 hexadecimal digits')
  return Shard(
    file=name.value,
    num_examples=node.get('num_examples').whole(0),
    size=node.get('size').whole(0),
    sha256=digest.value,
  )


def _refused(
  path: pathlib.Path, where: str, expected: str, received: str | None
) -> errors.DataError:
  return errors.DataError(
    f'{path}: expected {expected}{f" at {where}" if where else ""}; received '
    f'{received}. Convert the data set again, or remove the file; the records '
    'are then counted instead.'
  )
