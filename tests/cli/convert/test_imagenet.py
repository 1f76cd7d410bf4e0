"""The four programs for ImageNet, checked with plain TensorFlow."""

import hashlib
import io

import numpy as np
import pytest
import tensorflow as tf

from slim import errors
from slim.datasets.photographs import imagenet_download
from terngrad.cli import command
from terngrad.cli import flags
from terngrad.cli.convert import download_imagenet
from terngrad.cli.convert import imagenet
from terngrad.cli.convert import imagenet_boxes
from terngrad.cli.convert import imagenet_validation
from tests.slim import file_server
from tests.slim import image_files
from tests.slim import imagenet_made
from tests.slim import plain_records
from tests.slim import programs

KEYS = {
  *('image/encoded', 'image/format', 'image/class/label', 'image/class/text'),
  *('image/height', 'image/width', 'image/channels', 'image/colorspace'),
  *('image/class/synset', 'image/filename', 'image/object/bbox/label'),
  *(f'image/object/bbox/{side}' for side in ('xmin', 'xmax', 'ymin', 'ymax')),
}
SYNSETS = imagenet_made.SYNSETS
only = plain_records.only


def by_file(folder, split):
  return {
    only(example, 'image/filename').decode(): example
    for example in plain_records.in_folder(folder, split)
  }


def check_labels(example, synset):
  """Compares all but the pixels of a record."""
  assert set(example) == KEYS
  label = 1 + SYNSETS.index(synset)
  assert only(example, 'image/class/label') == label
  assert only(example, 'image/class/synset') == synset.encode()
  text = only(example, 'image/class/text').decode()
  assert text == imagenet_made.NAMES[label - 1]
  assert only(example, 'image/channels') == 3
  assert only(example, 'image/colorspace') == b'RGB'


def check(folder):
  """Compares all records with the files of `imagenet_made`."""
  training = imagenet_made.training_images()
  found = by_file(folder, 'train')
  assert len(found) == len(training) == 14
  for name, content in training.items():
    synset, _, file = name.partition('/')
    example = found[file]
    check_labels(example, synset)
    stored = only(example, 'image/encoded')
    assert only(example, 'image/format') == b'JPEG'
    if file.endswith(('_7.JPEG', '_2933.JPEG')):
      assert stored != content  # CMYK, and a PNG in disguise
    else:
      assert stored == content
    pixels = tf.io.decode_jpeg(stored).numpy().astype(int)
    assert pixels.shape == (20, 30, 3)
    boxes = [
      [round(v, 4) for v in example[f'image/object/bbox/{side}']]
      for side in ('xmin', 'ymin', 'xmax', 'ymax')
    ]
    labels = example['image/object/bbox/label']
    if file.endswith('_0.JPEG'):
      assert (boxes, labels) == (
        [[0.1], [0.1], [0.9], [0.9]],
        [only(example, 'image/class/label')],
      )
    else:
      assert (boxes, labels) == ([[], [], [], []], [])
  found = by_file(folder, 'validation')
  assert len(found) == 4
  images = imagenet_made.validation_images()
  for (file, content), synset in zip(
    images.items(), imagenet_made.VALIDATION, strict=True
  ):
    check_labels(found[file], synset)
    assert only(found[file], 'image/encoded') == content


def check_pixels(example, picture):
  pixels = tf.io.decode_jpeg(only(example, 'image/encoded')).numpy()
  difference = pixels.astype(int) - np.asarray(picture).astype(int)
  assert np.abs(difference).max() <= 20


def config(folder, **changes):
  defaults = {'train_shards': 3, 'validation_shards': 2}
  return download_imagenet.ConvertDownloadImagenetFlags(
    data_dir=str(folder), **{**defaults, **changes}
  )


def preprocess(folder, **changes):
  download_imagenet.act(config(folder, **changes))


@pytest.fixture
def published(monkeypatch):
  """Takes the checksums of the made files for those of the site."""
  files = imagenet_made.files()
  for name in imagenet_download.MD5:
    digest = hashlib.md5(files[name]).hexdigest()
    monkeypatch.setitem(imagenet_download.MD5, name, digest)


@pytest.fixture
def no_credentials(monkeypatch):
  for name in ('IMAGENET_USERNAME', 'IMAGENET_ACCESS_KEY'):
    monkeypatch.delenv(name, raising=False)


def test_tars_are_read_without_unpacking(tmp_path):
  folder = imagenet_made.write(tmp_path / 'D')
  before = sorted(path.name for path in folder.iterdir())
  result = programs.start(
    'download_and_preprocess_imagenet',
    *(folder, '--verify_checksums', 'False', '--train_shards', '3'),
    *('--validation_shards', '2'),
    folder=tmp_path,
  )
  assert result.returncode == 0, result.stderr
  assert result.stdout.splitlines()[-1] == (
    'Finished writing all 18 images in data set.'
  )
  check(folder)
  assert sorted(path.name for path in folder.iterdir()) == sorted(
    [
      *before,
      *(f'train-0000{i}-of-00003' for i in range(3)),
      *(f'validation-0000{i}-of-00002' for i in range(2)),
      *('labels.txt', 'shards.json'),
    ]
  )
  lines = (folder / 'labels.txt').read_text().splitlines()
  assert lines[:2] == ['0:background', '1:tench, Tinca tinca']


def test_nothing_but_the_output_directory_is_written(tmp_path):
  folder = imagenet_made.write(tmp_path / 'D')
  before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
  out = tmp_path / 'out'
  preprocess(folder, verify_checksums=False, output_directory=str(out))
  check(out)
  assert before == {
    path.name: path.stat().st_mtime_ns for path in folder.iterdir()
  }


def test_a_reader_of_the_model_garden_s_keys_reads_them(tmp_path):
  folder = imagenet_made.write(tmp_path)
  preprocess(folder, verify_checksums=False)
  keys = {
    'image/encoded': tf.io.FixedLenFeature([], tf.string, ''),
    'image/class/label': tf.io.FixedLenFeature([], tf.int64, -1),
    'image/class/text': tf.io.FixedLenFeature([], tf.string, ''),
    **{
      f'image/object/bbox/{side}': tf.io.VarLenFeature(tf.float32)
      for side in ('xmin', 'xmax', 'ymin', 'ymax')
    },
  }
  paths = sorted(map(str, folder.glob('train-*-of-*')))
  stream = tf.data.TFRecordDataset(paths).map(
    lambda record: tf.io.parse_single_example(record, keys)
  )
  found = list(stream)
  assert len(found) == 14
  assert {int(example['image/class/label']) for example in found} == {1, 2, 3}
  boxes = [example['image/object/bbox/xmin'].values for example in found]
  assert sorted(map(len, boxes)) == [0] * 11 + [1] * 3


def test_cmyk_and_png_in_disguise_keep_their_pixels(tmp_path):
  folder = imagenet_made.write(tmp_path)
  preprocess(folder, verify_checksums=False)
  found = by_file(folder, 'train')
  check_pixels(found['n01440764_7.JPEG'], image_files.picture(seed=5))
  check_pixels(found['n02105855_2933.JPEG'], image_files.picture(seed=6))


def test_raw_pixels_are_stored_row_by_row(tmp_path, monkeypatch):
  folder = imagenet_made.write(tmp_path)
  preprocess(folder, verify_checksums=False, raw_pixel=True)
  files = imagenet_made.training_images()
  for file, example in by_file(folder, 'train').items():
    assert only(example, 'image/format') == b'RAW'
    pixels = np.frombuffer(only(example, 'image/encoded'), np.uint8)
    pixels = pixels.reshape(
      only(example, 'image/height'), only(example, 'image/width'), 3
    )
    if file.endswith(('_7.JPEG', '_2933.JPEG')):
      continue
    content = files[f'{file.partition("_")[0]}/{file}']
    expected = tf.io.decode_jpeg(content, dct_method='INTEGER_ACCURATE')
    difference = pixels.astype(int) - expected.numpy().astype(int)
    assert np.abs(difference).max() <= 3
  monkeypatch.setenv('RAW_PIXEL', 'True')
  monkeypatch.setenv('RESIZE_DIMEN', '16')
  out = tmp_path / 'small'
  preprocess(folder, verify_checksums=False, output_directory=str(out))
  for example in plain_records.in_folder(out, 'train'):
    assert only(example, 'image/height') == only(example, 'image/width') == 16
    assert len(only(example, 'image/encoded')) == 16 * 16 * 3


def test_flags_come_before_the_environment(tmp_path, monkeypatch):
  monkeypatch.setenv('RAW_PIXEL', 'true')
  monkeypatch.setenv('RESIZE_DIMEN', '16')
  folder = imagenet_made.write(tmp_path)
  code = command.run(
    download_imagenet.COMMAND,
    'test',
    [str(folder), '--raw_pixel=False', '--resize_dimen=0']
    + ['--verify_checksums=False', '--train_shards=2', '--validation_shards=2'],
  )
  assert code == 0
  for example in plain_records.in_folder(folder, 'train'):
    assert only(example, 'image/format') == b'JPEG'


def test_images_are_unpacked_on_demand(tmp_path):
  folder = imagenet_made.write(tmp_path)
  preprocess(folder, verify_checksums=False, unpack=True)
  raw = folder / 'raw-data'
  expected = {
    f'train/{name}': content
    for name, content in imagenet_made.training_images().items()
  }
  for (name, content), synset in zip(
    imagenet_made.validation_images().items(),
    imagenet_made.VALIDATION,
    strict=True,
  ):
    expected[f'validation/{synset}/{name}'] = content
  found = {
    path.relative_to(raw).as_posix(): path.read_bytes()
    for path in raw.rglob('*.JPEG')
  }
  assert found == expected


def test_resizing_without_raw_pixels_is_refused(tmp_path):
  folder = imagenet_made.write(tmp_path)
  with pytest.raises(errors.DataError, match='received 64 without --raw_pixel'):
    preprocess(folder, verify_checksums=False, resize_dimen=64)


def test_missing_files_are_named(tmp_path):
  folder = imagenet_made.write(tmp_path, ['ILSVRC2012_img_val.tar'])
  with pytest.raises(
    errors.DataError, match='img_train.tar, .*bbox.*, .*synsets.txt.*--download'
  ):
    preprocess(folder)


def test_a_wrong_checksum_is_refused(tmp_path):
  folder = imagenet_made.write(tmp_path)
  with pytest.raises(errors.DataError, match='expected md5 1d675b47.*--noveri'):
    preprocess(folder)


def test_download_fetches_what_is_missing_with_credentials(
  tmp_path, published, monkeypatch
):
  monkeypatch.setenv('IMAGENET_USERNAME', 'me')
  monkeypatch.setenv('IMAGENET_ACCESS_KEY', 'secret')
  folder = imagenet_made.write(tmp_path / 'D', ['ILSVRC2012_img_val.tar'])
  with file_server.serving() as site:
    for name, content in imagenet_made.files().items():
      part = 'lists' if name.startswith('imagenet') else 'tars'
      site.files[f'/{part}/{name}'] = content
    site.cuts = [1 << 20] * 3 + [700]  # the lists whole, then a lost connection
    preprocess(
      folder,
      download=True,
      images_url=f'{site.url}/tars/',
      lists_url=f'{site.url}/lists/',
    )
  check(folder)
  fetched = [path for method, path, *_ in site.seen if method == 'GET']
  assert '/tars/ILSVRC2012_img_val.tar' not in fetched  # it was there
  for _, path, _, authorization in site.seen:
    assert (authorization is not None) == path.startswith('/tars/')
  assert not list(folder.glob('*.part'))


def test_download_without_credentials_asks_for_them_at_once(
  tmp_path, no_credentials, monkeypatch
):
  monkeypatch.setattr('sys.stdin', io.StringIO())  # no terminal
  with pytest.raises(flags.UsageError, match='IMAGENET_USERNAME and .*neither'):
    preprocess(tmp_path, download=True, images_url='http://127.0.0.1:9/')
  assert list(tmp_path.iterdir()) == []


def test_folders_are_built_with_the_lists_of_2017(tmp_path, capsys):
  lists = imagenet_made.write(tmp_path / 'lists')
  for name, content in imagenet_made.training_images().items():
    path = tmp_path / 'train' / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
  validation = tmp_path / 'validation'
  validation.mkdir()
  for name, content in imagenet_made.validation_images().items():
    (validation / name).write_bytes(content)
  labels = lists / 'imagenet_2012_validation_synset_labels.txt'
  for moved in (4, 0):  # the second run finds all in place
    imagenet_validation.act(
      imagenet_validation.ConvertImagenetValidationFlags(
        folder=str(validation), labels_file=str(labels)
      )
    )
    printed = capsys.readouterr().out
    assert printed.startswith(f'Moved {moved} of 4 images into 3 folders')
  imagenet_boxes.act(
    imagenet_boxes.ConvertImagenetBoxesFlags(
      annotations=str(lists / 'ILSVRC2012_bbox_train_v2.tar.gz'),
      synsets_file=str(lists / 'imagenet_lsvrc_2015_synsets.txt'),
    )
  )
  printed = capsys.readouterr()
  assert printed.err.endswith(
    'Read 3 annotations: 3 boxes; left out 0 annotations and 0 boxes.\n'
  )
  (tmp_path / 'boxes.csv').write_text(printed.out)
  imagenet.act(
    imagenet.ConvertImagenetFlags(
      train_directory=str(tmp_path / 'train'),
      validation_directory=str(validation),
      output_directory=str(tmp_path / 'out'),
      train_shards=3,
      validation_shards=2,
      labels_file=str(lists / 'imagenet_lsvrc_2015_synsets.txt'),
      imagenet_metadata_file=str(lists / 'imagenet_metadata.txt'),
      bounding_box_file=str(tmp_path / 'boxes.csv'),
    )
  )
  check(tmp_path / 'out')


@pytest.mark.parametrize(
  ('program', 'words', 'message'),
  [
    ('process_bounding_boxes', [], '--annotations: expected a value'),
    (
      'process_bounding_boxes',
      ['a', 'b', 'c'],
      "Expected flags only, received the word 'c'",
    ),
    (
      'preprocess_imagenet_validation_data',
      ['a'],
      '--labels_file: expected a value',
    ),
    (
      'preprocess_imagenet_validation_data',
      ['--x', 'y'],
      '--x: expected a flag of this program',
    ),
  ],
)
@pytest.mark.slow
def test_bad_arguments_exit_with_2(tmp_path, program, words, message):
  result = programs.start(program, *words, folder=tmp_path)
  assert (result.returncode, result.stdout) == (2, '')
  assert result.stderr.startswith(f'error: {message}')


@pytest.mark.slow
def test_the_real_samples_are_written(tmp_path):
  photos = imagenet_made.real_samples()
  synsets = sorted(name.partition('/')[0] for name in photos)
  assert len(set(synsets)) == 40
  found = by_file(imagenet_made.convert_samples(photos, tmp_path, 8), 'train')
  assert len(found) == 40
  for name, content in photos.items():
    synset, _, file = name.partition('/')
    example = found[file]
    assert only(example, 'image/class/label') == 1 + synsets.index(synset)
    assert only(example, 'image/encoded') == content
    shape = tf.io.decode_jpeg(content, channels=3).shape
    size = [only(example, f'image/{s}') for s in ('height', 'width')]
    assert size == list(shape[:2])
