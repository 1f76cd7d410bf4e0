import copy
import json

import pytest

from slim import errors
from slim.datasets.records import manifest

GOOD = {
  'format': 1,
  'dataset': 'flowers',
  'num_classes': 3,
  'labels': {'1': 'daisy', '2': 'rose'},
  'splits': {
    'train': {
      'num_examples': 5,
      'shards': [
        {'file': 'train-0', 'num_examples': 2, 'size': 7, 'sha256': 'a' * 64},
        {'file': 'train-1', 'num_examples': 3, 'size': 9, 'sha256': 'b' * 64},
      ],
    }
  },
}


def write(folder, content):
  text = content if isinstance(content, str) else json.dumps(content)
  (folder / 'shards.json').write_text(text)
  return folder


def changed(*keys, to):
  content = copy.deepcopy(GOOD)
  node = content
  for key in keys[:-1]:
    node = node[key]
  node[keys[-1]] = to
  return content


def test_what_a_converter_wrote_is_read(tmp_path):
  found = manifest.read(write(tmp_path, GOOD))
  assert found.dataset == 'flowers'
  assert found.num_classes == 3
  assert found.labels == {1: 'daisy', 2: 'rose'}
  assert found.splits['train'].num_examples == 5
  assert found.splits['train'].shards[1] == ('train-1', 3, 9, 'b' * 64)


def test_missing_file_is_none(tmp_path):
  assert manifest.read(tmp_path) is None
  assert manifest.read(tmp_path / 'nowhere') is None


def test_unknown_keys_are_ignored(tmp_path):
  content = changed('splits', 'train', 'shards', 0, 'compressed', to=[1])
  content['made_by'] = {'program': 'x'}
  assert manifest.read(write(tmp_path, content)).num_classes == 3


@pytest.mark.parametrize(
  ('num_classes', 'labels', 'expected'),
  [
    (3, None, 3),
    (3, {'0': 'a', '2': 'c'}, 3),
    # Classes counted without the background, which is label 0.
    (3, {'1': 'a', '2': 'b', '3': 'c'}, 4),
  ],
)
def test_logits_reach_every_label(tmp_path, num_classes, labels, expected):
  content = changed('labels', to=labels) | {'num_classes': num_classes}
  assert manifest.read(write(tmp_path, content)).label_range == expected


TRAIN = ('splits', 'train')
SHARD = (*TRAIN, 'shards', 0)


@pytest.mark.parametrize(
  ('content', 'message'),
  [
    ('', 'expected JSON'),
    ('[' * 100000, 'expected JSON'),
    ('\x00', 'expected JSON'),
    ('[]', 'expected an object; received'),
    ('{}', 'expected a value at format; received none'),
    (changed('format', to=2), 'from 1 to 1 at format; received 2'),
    (changed('format', to=True), 'at format; received True'),
    (changed('dataset', to=None), 'a string at dataset; received None'),
    (changed('num_classes', to=0), 'at num_classes; received 0'),
    (changed('num_classes', to=3.0), r'at num_classes; received 3\.0'),
    (changed('num_classes', to=2**40), 'at num_classes'),
    (changed('labels', to=[]), r'an object at labels; received \[\]'),
    (changed('labels', '-1', to='x'), "at labels; received '-1'"),
    (changed('labels', '01', to='x'), "at labels; received '01'"),
    (changed('labels', '9' * 10, to='x'), 'at labels'),
    (changed('labels', '1', to=5), r'a string at labels\.1; received 5'),
    (changed('labels', '1', to='a\nb'), r'a line end\) at labels\.1; received'),
    (changed('labels', '1', to='a\x1bb'), r'control .*\) at labels\.1; rec'),
    (changed('splits', to=None), 'an object at splits; received None'),
    (
      changed(*TRAIN, 'num_examples', to=6),
      "sum of its shards' num_examples at splits.train.num_examples; "
      'received 6',
    ),
    (changed(*TRAIN, 'shards', to={}), r'a list at splits\.train\.shards'),
    (
      changed(*SHARD, 'num_examples', to=-1),
      r'at splits\.train\.shards\[0\]\.num_examples; received -1',
    ),
    (changed(*SHARD, 'size', to='7'), r"\[0\]\.size; received '7'"),
    (changed(*SHARD, 'sha256', to='A' * 64), '64 hexadecimal digits'),
    (changed(*SHARD, 'file', to='train-1'), 'every file once'),
    (changed(*SHARD, 'file', to='../train-0'), 'a file in this folder'),
    (changed(*SHARD, 'file', to='..'), 'a file in this folder'),
    (changed(*SHARD, 'file', to='a\\b'), 'a file in this folder'),
    (changed(*SHARD, 'file', to='a\x00b'), 'a file in this folder'),
    (changed(*SHARD, 'file', to=''), 'a file in this folder'),
    (changed(*SHARD, 'file', to='a' * 256), 'a file in this folder'),
    (changed(*SHARD, 'file', to='é' * 128), 'a file in this folder'),
    (changed(*SHARD, 'file', to='a\ud800'), 'lone surrogates'),
    (changed('labels', '1', to='\udfff'), r'lone surrogates at labels\.1'),
  ],
)
def test_invalid_values_are_refused_with_their_location(
  tmp_path, content, message
):
  with pytest.raises(errors.DataError, match=message) as caught:
    manifest.read(write(tmp_path, content))
  assert str(tmp_path / 'shards.json') in str(caught.value)
  assert 'Convert the data set again' in str(caught.value)
  assert len(str(caught.value)) < 600


def test_broken_link_is_refused(tmp_path):
  (tmp_path / 'shards.json').symlink_to(tmp_path / 'nowhere')
  with pytest.raises(errors.DataError, match='received a broken symbolic link'):
    manifest.read(tmp_path)
