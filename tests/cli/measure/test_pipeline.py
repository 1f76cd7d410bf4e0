"""The program, started as its users start it."""

import re

import pytest

from tests.slim import programs


def start(folder, *arguments):
  return programs.start('measure_pipeline', *arguments, folder=folder)


@pytest.mark.slow
def test_prints_the_ratio_of_each_net_to_bare_decoding(tmp_path):
  result = start(
    *(tmp_path, '--images=8', '--batch_size=2', '--batches=2', '--rounds=1'),
    *('--nets=alexnet,vgg_16', '--storages=records,database,folder'),
  )
  assert result.returncode == 0, result.stderr
  heading, bare, *nets = result.stdout.splitlines()
  assert re.match(
    r'500x375 JPEGs of \d+ kB to 224 pixels, \d+ threads', heading
  )
  assert re.fullmatch(r'bare: \d+ images/s', bare)
  assert [line.split(':')[0] for line in nets] == [
    f'{net}, {storage}'
    for net in ('alexnet', 'vgg_16')
    for storage in ('records', 'database', 'folder')
  ]
  for line in nets:
    assert re.search(r': \d+ images/s, ratio to bare \d+\.\d\d \(', line)
  assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(
  ('arguments', 'code', 'message'),
  [
    (['x'], 2, "flags only, received the word 'x'"),
    (['--storages=tape'], 2, 'expected one of database, folder, records'),
    (['--images=3'], 2, 'images: expected a number >= 4'),
    (['--source_dir=.'], 1, 'expected JPEG files; received none'),
  ],
)
def test_bad_arguments_are_refused(tmp_path, arguments, code, message):
  result = start(tmp_path, *arguments)
  assert (result.returncode, result.stdout) == (code, '')
  assert message in result.stderr.splitlines()[-1]
