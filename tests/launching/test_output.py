"""Lines for people."""

import os

from terngrad.launching import output


def test_paths_that_are_no_utf8_are_written_somehow(capsys):
  path = os.fsdecode(b'/a\xff')
  output.say(path)
  output.warn([path])
  assert capsys.readouterr() == ('/a\\udcff\n', '/a\\udcff\n')
