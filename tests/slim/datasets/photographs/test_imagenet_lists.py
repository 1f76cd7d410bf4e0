import pathlib
import tarfile

import pytest

from slim import errors
from slim.datasets.photographs import imagenet_boxes
from slim.datasets.photographs import imagenet_lists
from tests.slim import archives_made
from tests.slim import imagenet_made

SYNSETS = imagenet_made.SYNSETS


def written(tmp_path, text):
  path = tmp_path / 'list.txt'
  path.write_text(text)
  return path


def test_synsets_are_read_in_their_order(tmp_path):
  path = written(tmp_path, 'n00000002\nn00000001\n')
  assert imagenet_lists.synsets(path) == ['n00000002', 'n00000001']


@pytest.mark.parametrize(
  ('text', 'message'),
  [
    ('', 'received an empty file'),
    ('n00000001\nfish\n', "received 'fish' in line 2"),
    ('n00000001\nn00000001\n', 'received n00000001 twice'),
  ],
)
def test_other_lists_of_synsets_are_refused(tmp_path, text, message):
  with pytest.raises(errors.DataError, match=message):
    imagenet_lists.synsets(written(tmp_path, text))


def test_a_missing_list_is_named(tmp_path):
  with pytest.raises(errors.DataError, match='x.txt: expected a readable text'):
    imagenet_lists.synsets(tmp_path / 'x.txt')


def test_validation_labels_count_from_one(tmp_path):
  path = written(tmp_path, 'n00000002\nn00000001\nn00000002\n')
  labels = imagenet_lists.validation_labels(path, ['n00000001', 'n00000002'])
  assert labels == [2, 1, 2]


def test_a_validation_label_that_is_no_class_is_refused(tmp_path):
  path = written(tmp_path, 'n00000001\nn00000003\n')
  with pytest.raises(errors.DataError, match='received n00000003 in line 2'):
    imagenet_lists.validation_labels(path, ['n00000001'])


def test_names_of_synsets_may_have_commas(tmp_path):
  path = written(tmp_path, 'n00000001\ttench, Tinca tinca\n')
  assert imagenet_lists.names(path) == {'n00000001': 'tench, Tinca tinca'}
  with pytest.raises(errors.DataError, match='a synset, a tab and names'):
    imagenet_lists.names(written(tmp_path, 'n00000001 tench\n'))


def annotations(tmp_path, contents):
  """Writes {synset/name: xml}; returns the folder."""
  for name, content in contents.items():
    path = tmp_path / 'boxes' / f'{name}.xml'
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
  return tmp_path / 'boxes'


@pytest.mark.parametrize(
  ('box', 'line'),
  [
    ((40, 30, 360, 270), 'a,0.1000,0.1000,0.9000,0.9000'),
    ((360, 270, 40, 30), 'a,0.1000,0.1000,0.9000,0.9000'),  # corners swapped
    ((-5, 0, 500, 300), 'a,0.0000,0.0000,1.0000,1.0000'),  # beyond the image
    ((40, 30, 40, 270), None),  # empty
    ((450, 30, 500, 270), None),  # empty within the image
  ],
)
def test_boxes_are_relative_ordered_and_clipped_to_the_image(
  tmp_path, box, line
):
  name = f'{SYNSETS[0]}/{SYNSETS[0]}_1'
  content = imagenet_made.annotation(f'{SYNSETS[0]}_1', box)
  found = imagenet_boxes.process(annotations(tmp_path, {name: content}))
  expected = [line.replace('a', f'{SYNSETS[0]}_1.JPEG', 1)] if line else []
  assert (found.lines, found.files) == (expected, 1)
  assert found.skipped_boxes == (not line)


def test_boxes_of_other_classes_are_skipped(tmp_path):
  one, two, three = SYNSETS
  folder = annotations(
    tmp_path,
    {
      f'{one}/{one}_1': imagenet_made.annotation(f'{one}_1'),
      # Another class of the list; then a label that is no synset.
      f'{one}/{one}_2': imagenet_made.annotation(f'{one}_2', label=two),
      f'{one}/{one}_3': imagenet_made.annotation(f'{one}_3', label='fish'),
      f'{three}/{three}_1': imagenet_made.annotation(f'{three}_1'),
    },
  )
  found = imagenet_boxes.process(folder, [one, two])
  assert [line.partition(',')[0] for line in found.lines] == [
    f'{one}_1.JPEG',
    f'{one}_3.JPEG',
  ]
  assert (found.files, found.skipped_files, found.skipped_boxes) == (4, 1, 1)
  assert len(imagenet_boxes.process(folder).lines) == 4


def test_the_archive_gives_what_the_folder_gives(tmp_path):
  names = [f'{synset}/{synset}_{i}' for synset in SYNSETS for i in (2, 1)]
  contents = {
    name: imagenet_made.annotation(pathlib.PurePosixPath(name).name)
    for name in names
  }
  archive = tmp_path / 'boxes.tar.gz'
  archive.write_bytes(
    archives_made.tar(
      [archives_made.member(f'{n}.xml', c) for n, c in contents.items()],
      'w:gz',
    )
  )
  from_folder = imagenet_boxes.process(annotations(tmp_path, contents))
  found = imagenet_boxes.process(archive)
  assert found == from_folder and found.lines == sorted(found.lines)


BOMB = b"""<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b "%s">
<!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;">]><annotation>&c;</annotation>""" % (
  b'x' * 1000
)
OUTSIDE = b"""<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]>
<annotation><size><width>&b;</width></size></annotation>"""


@pytest.mark.parametrize(
  ('content', 'message'),
  [
    (BOMB, 'a declaration of the document type'),
    (OUTSIDE, 'a declaration of the document type'),
    (b'<annotation>', 'no element found'),
    (b'<annotation/>', 'no size/width'),
    (imagenet_made.annotation('a', size=(0, 300)), 'division by zero'),
    (imagenet_made.annotation('a', box=('x', 1, 2, 3)), 'invalid literal'),
    (imagenet_made.annotation('a', box=('9' * 400, 1, 2, 3)), 'too large'),
    (b'<?xml version="1.0" encoding="klingon"?><a/>', 'encoding'),
  ],
)
def test_hostile_and_broken_annotations_are_refused(tmp_path, content, message):
  folder = annotations(tmp_path, {'n00000001/bad': content})
  with pytest.raises(errors.DataError, match=f'bad.xml: expected .*{message}'):
    imagenet_boxes.process(folder)


def test_an_annotation_that_is_a_folder_is_refused(tmp_path):
  (tmp_path / 'n00000001' / 'bad.xml').mkdir(parents=True)
  with pytest.raises(errors.DataError, match='bad.xml: .*"Is a directory"'):
    imagenet_boxes.process(tmp_path)


def test_an_archive_with_a_link_is_refused(tmp_path):
  archive = tmp_path / 'boxes.tar.gz'
  link = archives_made.member('n/a.xml', kind=tarfile.SYMTYPE, target='/etc')
  archive.write_bytes(archives_made.tar([link], 'w:gz'))
  with pytest.raises(errors.DataError, match='a link'):
    imagenet_boxes.process(archive)


def test_no_annotations_are_refused(tmp_path):
  with pytest.raises(errors.DataError, match='expected annotations <synset>'):
    imagenet_boxes.process(tmp_path)


def test_lists_of_boxes_are_read_by_image(tmp_path):
  path = written(tmp_path, 'a.JPEG,0,0.1,1,0.9\nb.JPEG,0,0,1,1\na.JPEG,0,0,1,1')
  assert imagenet_boxes.read(path) == {
    'a.JPEG': [(0, 0.1, 1, 0.9), (0, 0, 1, 1)],
    'b.JPEG': [(0, 0, 1, 1)],
  }


@pytest.mark.parametrize(
  'line', ['a,0,0,1', 'a,0,0,1,2', 'a,0.5,0,0.4,1', 'a,b']
)
def test_other_lists_of_boxes_are_refused(tmp_path, line):
  path = written(tmp_path, f'a.JPEG,0,0,1,1\n{line}\n')
  with pytest.raises(errors.DataError, match='received in line 2'):
    imagenet_boxes.read(path)
