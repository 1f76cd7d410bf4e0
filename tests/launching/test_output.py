"""Lines for people."""

import io
import os
import sys

from terngrad.launching import output


def test_paths_that_are_not_utf8_are_escaped(capsys):
  path = os.fsdecode(b'/a\xff')
  output.say(path)
  output.warn([path])
  assert capsys.readouterr() == ('/a\\udcff\n', '/a\\udcff\n')


def test_letters_outside_the_encoding_are_escaped(monkeypatch):
  written = io.BytesIO()
  out = io.TextIOWrapper(written, encoding='ascii')
  monkeypatch.setattr(sys, 'stdout', out)
  monkeypatch.setattr(sys, 'stderr', out)
  output.say('/\xe9')
  output.warn(['/\xe8'])
  assert written.getvalue() == b'/\\xe9\n/\\xe8\n'


def test_lines_that_nobody_reads_are_dropped(close_output):
  out = close_output()
  for _ in range(2):
    output.try_say('line')
    # As Python does at its end; a failure would be the exit code.
    out.flush()
