import contextlib
import json

from terngrad.training import records


def write(folder, steps, **options):
  recorder = records.Recorder(folder, **options)
  with contextlib.closing(recorder):
    for step in steps:
      recorder.scalars(step, {'loss': 1.0 / step})
  return recorder


def steps_in(folder):
  return [record['step'] for record in records.read(folder)]


def test_a_continued_run_holds_no_step_twice(tmp_path):
  write(tmp_path, [10, 20, 30])
  recorder = write(tmp_path, [25, 35], step=20)
  assert recorder.last == {'step': 20, 'loss': 0.05}
  assert steps_in(tmp_path) == [10, 20, 25, 35]


def test_a_torn_last_line_is_dropped(tmp_path):
  write(tmp_path, [10, 20])
  path = tmp_path / records.FILE_NAME
  path.write_text(path.read_text() + '{"step": 30, "lo')
  assert steps_in(tmp_path) == [10, 20]
  write(tmp_path, [30], step=20)
  lines = path.read_text().splitlines()
  assert [json.loads(line)['step'] for line in lines] == [10, 20, 30]


def test_numbers_that_are_not_finite_are_written_as_null(tmp_path):
  recorder = records.Recorder(tmp_path)
  with contextlib.closing(recorder):
    recorder.scalars(1, {'loss': float('nan'), 'rate': float('inf')})
  assert records.read(tmp_path) == [{'step': 1, 'loss': None, 'rate': None}]


def test_a_folder_without_records_has_none(tmp_path):
  assert records.read(tmp_path) == []
