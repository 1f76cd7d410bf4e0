"""Documents of a corpus, from folders that were not made for it."""

import os

import pytest

from slim import errors
from slim.datasets.text import documents


def written(folder, files):
  for name, content in files.items():
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
  return [str(folder)]


def test_a_folder_gives_each_text_once_without_binary_and_hidden_files(
  tmp_path,
):
  paths = written(
    tmp_path,
    {
      'a.txt': b'one',
      'in/b.txt': b'two',
      'in/copy.txt': b'one',
      'empty.txt': b'',
      'image.png': b'\x89PNG\0\0',
      '.git/config': b'hidden',
      '.hidden': b'hidden',
    },
  )
  found = documents.read(paths)
  assert sorted(found.documents) == [b'one', b'two']
  assert found.left_out == 1


def test_suffixes_select_files_of_folders_only(tmp_path):
  written(tmp_path, {'a.md': b'one', 'b.txt': b'two', 'c.log': b'three'})
  paths = [str(tmp_path), str(tmp_path / 'c.log')]
  found = documents.read(paths, ['.md'])
  assert sorted(found.documents) == [b'one', b'three']


def test_the_folder_of_the_result_has_no_documents(tmp_path):
  paths = written(tmp_path, {'a.txt': b'one', 'in/shards/labels.txt': b'two'})
  output = str(tmp_path / 'in' / '..' / 'in' / 'shards')
  assert documents.read(paths, output=output).documents == (b'one',)
  with pytest.raises(errors.DataError, match='another folder than that of'):
    documents.read(paths, output=str(tmp_path))


def test_a_file_given_by_name_is_read_as_it_is(tmp_path):
  written(tmp_path, {'a.bin': b'\0\xff\x80'})
  found = documents.read([str(tmp_path / 'a.bin')])
  assert found.documents == (b'\0\xff\x80',)


def test_links_that_form_a_loop_are_not_followed(tmp_path):
  paths = written(tmp_path, {'in/a.txt': b'one', 'b.txt': b'two'})
  (tmp_path / 'in' / 'loop').symlink_to(tmp_path)
  (tmp_path / 'broken').symlink_to(tmp_path / 'nothing')
  (tmp_path / 'self').symlink_to(tmp_path / 'self')
  assert sorted(documents.read(paths).documents) == [b'one', b'two']
  with pytest.raises(errors.DataError, match='self: expected text that can'):
    documents.read([str(tmp_path / 'self')])


def test_pipes_are_left_out_and_refused_by_name(tmp_path):
  paths = written(tmp_path, {'a.txt': b'one'})
  os.mkfifo(tmp_path / 'pipe')
  assert documents.read(paths).documents == (b'one',)
  with pytest.raises(errors.DataError, match='received a special file'):
    documents.read([str(tmp_path / 'pipe')])


@pytest.mark.parametrize('name', ['absent', 'zero\0byte', 'x' * 300])
def test_a_path_that_cannot_be_read_is_refused(tmp_path, name):
  with pytest.raises(errors.DataError, match='expected text that can be read'):
    documents.read([str(tmp_path / name)])


def test_folders_without_text_are_refused(tmp_path):
  paths = written(tmp_path, {'a': b'', 'b': b'\0'})
  with pytest.raises(
    errors.DataError, match='expected files with text; received none; 1 binary'
  ):
    documents.read(paths)


def test_the_digest_depends_on_contents_and_not_on_places(tmp_path):
  first = written(tmp_path / '1', {'a': b'one', 'b': b'two'})
  moved = written(tmp_path / '2', {'c/d': b'two', 'e': b'one', 'f': b'one'})
  other = written(tmp_path / '3', {'a': b'one', 'b': b'tw0'})
  digests = [documents.read(each).digest for each in (first, moved, other)]
  assert digests[0] == digests[1] != digests[2]
  assert documents.read(first).documents == documents.read(moved).documents


def test_splits_are_ninety_and_twice_five_percent_in_the_order_of_the_text():
  texts = [bytes([65 + i]) * (7 + i) for i in range(20)]
  found = documents.split(texts)
  assert b''.join(sum(found.values(), [])) == b''.join(texts)
  total = sum(map(len, texts))
  sizes = {name: sum(map(len, parts)) for name, parts in found.items()}
  assert sizes == {
    'train': total * 90 // 100,
    'validation': total * 95 // 100 - total * 90 // 100,
    'test': total - total * 95 // 100,
  }


@pytest.mark.parametrize('text', ['é' * 101, '€' * 101, '🙂' * 101])
def test_a_character_of_utf8_is_not_cut(text):
  found = documents.split([text.encode()])
  parts = [part.decode() for parts in found.values() for part in parts]
  assert ''.join(parts) == text
  assert len(parts) == 3


def test_bytes_that_only_look_like_utf8_are_split_all_the_same():
  found = documents.split([b'\x80' * 1000])
  assert [len(p) for parts in found.values() for p in parts] == [903, 50, 47]


def test_the_standard_library_is_a_corpus_that_does_not_change():
  found = documents.read_standard_library()
  assert found == documents.read_standard_library()
  assert sum(map(len, found.documents)) > 3e6
  assert any(b'class OrderedDict(dict):' in text for text in found.documents)
