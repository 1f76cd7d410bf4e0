"""Shards of text: written, verified, read and refused."""

import functools
import json
import operator

import numpy as np
import pytest

from slim import errors
from slim.datasets import factory
from slim.datasets.records import manifest
from slim.datasets.records import records
from slim.datasets.records import shard_manifest
from slim.datasets.records import sharding
from slim.datasets.text import convert_text
from slim.datasets.text import documents
from slim.datasets.text import vocabulary

LENGTH = 8
# Bytes of every value, so also invalid UTF-8, in one huge line and many.
RANDOM = np.random.default_rng(1)
TEXTS = [
  RANDOM.bytes(3000).replace(b'\n', b'\r'),
  b'\n' * 500,
  'Zürich, Ωmega\n'.encode() * 60,
]
LAYOUT = convert_text.TextLayout(sequence_length=LENGTH)


@pytest.fixture(scope='module')
def corpus(tmp_path_factory):
  folder = tmp_path_factory.mktemp('corpus')
  for number, text in enumerate(TEXTS):
    (folder / str(number)).write_bytes(text)
  return documents.read([str(folder / str(n)) for n in range(len(TEXTS))])


@pytest.fixture(scope='module')
def converted(tmp_path_factory, corpus):
  folder = tmp_path_factory.mktemp('shards')
  sharding.write(folder, convert_text.plan(corpus, LAYOUT))
  return folder


def load(folder, split, training=False, **options):
  return factory.load(
    'text',
    folder,
    split,
    factory.ReadOptions(
      image_size=1, batch_size=5, training=training, **options
    ),
  )


def test_every_byte_but_the_last_few_is_predicted_once(corpus, converted):
  for split, texts in documents.split(corpus.documents).items():
    batches, info = load(converted, split)
    tokens, targets = (np.concatenate(x) for x in zip(*batches, strict=True))
    assert tokens.shape == targets.shape == (info.num_examples, LENGTH)
    expected = [t for text in texts for t in [*text, 256]]
    number = (len(expected) - 1) // LENGTH
    assert info.num_examples == number
    flat = targets.ravel().tolist()
    assert flat == expected[1 : number * LENGTH + 1]
    assert tokens.ravel().tolist() == expected[: number * LENGTH]
    assert info.text.num_bytes[split] == sum(t < 256 for t in flat)
    bits = info.text.bits_per_nat(split, number) * info.text.num_bytes[split]
    assert bits == pytest.approx(len(flat) / np.log(2))


def test_shards_are_verified_and_a_conversion_is_reused(corpus, converted):
  found = shard_manifest.verify(converted)
  assert found.label_range == 257
  assert found.text.digest == corpus.digest
  again = sharding.write(converted, convert_text.plan(corpus, LAYOUT))
  assert not again.written
  with pytest.raises(errors.DataError, match='another source or other options'):
    longer = LAYOUT._replace(sequence_length=9)
    sharding.write(converted, convert_text.plan(corpus, longer))


def test_training_streams_shuffle_and_continue_at_a_position(converted):
  whole, info = load(converted, 'train', training=True, seed=3)
  later, _ = load(converted, 'train', training=True, seed=3, start=10)
  first = [t.numpy() for t, _ in whole.take(4)]
  np.testing.assert_array_equal(first[2], next(iter(later))[0])
  in_order = next(iter(load(converted, 'train')[0]))[0].numpy()
  assert not (first[0] == in_order).all()
  assert info.num_classes == 257


def test_another_corpus_is_refused(corpus, converted):
  load(converted, 'train', corpus=corpus.digest)
  with pytest.raises(
    errors.DataError, match=f'expected abc; received {corpus.digest}.*compared'
  ):
    load(converted, 'train', corpus='abc')


def test_a_folder_that_does_not_say_it_is_text_is_refused(corpus, tmp_path):
  sharding.write(tmp_path, convert_text.plan(corpus, LAYOUT))
  path = tmp_path / manifest.FILE_NAME
  tree = json.loads(path.read_text())
  for key, value in (
    ('sequence_length', 0),
    ('sequence_length', '8'),
    ('num_bytes', {}),
    ('tokenizer', None),
  ):
    path.write_text(json.dumps(tree | {'text': tree['text'] | {key: value}}))
    with pytest.raises(errors.DataError, match=f'at text.{key}'):
      load(tmp_path, 'train')
  del tree['text']
  path.write_text(json.dumps(tree))
  with pytest.raises(errors.DataError, match='expected text; received a shar'):
    load(tmp_path, 'train')


def test_records_of_another_length_are_refused_when_read(corpus, tmp_path):
  sharding.write(tmp_path, convert_text.plan(corpus, LAYOUT))
  path = tmp_path / manifest.FILE_NAME
  tree = json.loads(path.read_text())
  tree['text']['sequence_length'] = LENGTH + 1
  path.write_text(json.dumps(tree))
  batches, _ = load(tmp_path, 'validation')
  with pytest.raises(records.FAILURES):
    next(iter(batches))


@pytest.mark.parametrize(
  ('changes', 'match'),
  [
    ({'sequence_length': 0}, 'sequence_length: expected 1 or more'),
    ({'sequence_length': 5000}, 'whose 90 % for train has more than 5000'),
    ({'tokenizer': 'words'}, 'Unknown tokenizer'),
    ({'tokenizer': 'bpe', 'vocabulary_size': 256}, 'expected from 257 to'),
    ({'tokenizer': 'bpe', 'vocabulary_size': 65537}, 'expected from 257 to'),
  ],
)
def test_a_layout_that_does_not_fit_is_refused(corpus, changes, match):
  with pytest.raises(errors.DataError, match=match):
    convert_text.plan(corpus, LAYOUT._replace(**changes))


def test_a_text_that_is_too_short_for_a_test_is_refused():
  corpus = documents.Corpus((b'short',), 'x', 'me')
  with pytest.raises(errors.DataError, match='me: expected a text whose 90 %'):
    convert_text.plan(corpus, LAYOUT)


def test_a_text_whose_test_would_predict_only_ends_of_documents_is_refused():
  # 5 % of 20 bytes is one, and the end of the document follows it.
  corpus = documents.Corpus((b'twenty bytes of text',), 'x', 'me')
  with pytest.raises(errors.DataError, match='whose 5 % for .* than 1 tokens'):
    convert_text.plan(corpus, LAYOUT._replace(sequence_length=1))


@pytest.fixture(scope='module')
def known():
  pytest.importorskip('tokenizers')
  return vocabulary.train(vocabulary.BPE, 300, [TEXTS[2], b'<end> of it'])


def test_tokens_decode_to_the_text_and_count_its_bytes(known):
  # The short text has no more pairs to merge.
  assert 257 < known.size <= 300
  for text in (TEXTS[2], '🙂 <end>\0 x\r\n'.encode(), b'a' * 10000):
    tokens = known.encode(text)
    assert known.decode(tokens) == text.decode()
    assert known.lengths[tokens].sum() == len(text)
    assert known.end not in tokens
  assert len(known.encode(TEXTS[2])) < len(TEXTS[2]) / 3


def test_a_description_makes_an_equal_vocabulary(known):
  loaded = vocabulary.load(known.description)
  np.testing.assert_array_equal(loaded.lengths, known.lengths)
  assert loaded.description == known.description
  np.testing.assert_array_equal(loaded.encode(TEXTS[2]), known.encode(TEXTS[2]))


@pytest.mark.parametrize(
  'text', ['{', '{}', '[1]', 'x', 'null', '[' * 10**5, '{"model": 1}']
)
def test_a_damaged_description_is_refused(known, text):
  del known
  with pytest.raises(errors.DataError, match='expected byte pairs as'):
    vocabulary.load(text)


def changed(known, path, value):
  """Returns the description with the value at a path of keys replaced."""
  tree = json.loads(known.description)
  *parents, last = path
  node = functools.reduce(operator.getitem, parents, tree)
  node[last] = value
  return json.dumps(tree)


@pytest.mark.parametrize(
  ('path', 'value', 'message'),
  [
    # The library itself ends the process for tokens beyond the vocabulary.
    (('model', 'vocab', 'a'), 2**31, 'not 0, 1, 2'),
    (('model', 'vocab', 'a'), 1, 'not 0, 1, 2'),
    (('model', 'vocab', 'a'), True, 'not 0, 1, 2'),
    (('model', 'vocab', 'a'), {}, 'not 0, 1, 2'),
    (('model', 'vocab'), {'a': 0}, 'a byte without token'),
    (('model', 'vocab'), ['a'], 'received others'),
    (('model', 'merges'), [], 'neither a byte nor a pair'),
    (('model', 'merges', 0), ['a', '?never'], 'the pair'),
    (('model', 'merges', 0), ['a'], 'the pair'),
    (('model', 'merges', 0), [['a'], 'b'], 'received others'),
    (('model', 'merges', 0), 7, 'received others'),
    (('model', 'type'), 'WordLevel', 'type: WordLevel'),
    (('model', 'dropout'), 0.5, 'dropout: 0.5'),
    (('model', 'unk_token'), 'a', 'unk_token: a'),
    (('normalizer',), {'type': 'Lowercase'}, 'normalizer: '),
    (('pre_tokenizer',), None, 'pre_tokenizer: None'),
    (('pre_tokenizer', 'add_prefix_space'), True, 'pre_tokenizer: '),
    (('truncation',), {'max_length': 1}, 'truncation: '),
    (('added_tokens',), [{'id': 2**63, 'content': 'a'}], 'added_tokens: '),
  ],
)
def test_a_hostile_description_is_refused(known, path, value, message):
  with pytest.raises(errors.DataError, match=message):
    vocabulary.load(changed(known, path, value))


def test_a_pair_twice_is_refused(known):
  merges = json.loads(known.description)['model']['merges']
  text = changed(known, ('model', 'merges'), [*merges, merges[0]])
  with pytest.raises(errors.DataError, match='a pair twice'):
    vocabulary.load(text)


def test_pairs_of_older_descriptions_are_read(known):
  merges = json.loads(known.description)['model']['merges']
  joined = [' '.join(pair) for pair in merges]
  loaded = vocabulary.load(changed(known, ('model', 'merges'), joined))
  assert loaded.description == known.description


def test_text_that_is_no_utf8_is_refused(known):
  with pytest.raises(
    errors.DataError, match='received byte 0xff near .*--tokenizer=bytes'
  ):
    known.encode(b'good \xff bad')


def test_bytes_decode_with_replacements():
  known = vocabulary.load('')
  assert known.decode([72, 105, 255, 256]) == 'Hi\ufffd'
