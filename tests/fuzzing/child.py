"""Fuzzes one target: python -m tests.fuzzing.child TARGET SEED INPUTS FOLDER.

FOLDER/input is what is being tried, also after the process has died of it, and
FOLDER/found.json what a search that ended has seen. With INPUTS the path of a
file, that is tried alone.
"""

import json
import os
import pathlib
import sys
import tempfile

from absl import logging

from tests.fuzzing import reached
from tests.fuzzing import search
from tests.fuzzing import targets


def main():
  name, seed, inputs, folder = sys.argv[1:]
  folder = pathlib.Path(folder)
  target = targets.get(name)
  # Damage that is told of is no news here.
  logging.set_verbosity(logging.FATAL)
  # In memory where that can be: parsers that write would wait for a disk.
  memory = pathlib.Path('/dev/shm')
  with tempfile.TemporaryDirectory(
    dir=memory if memory.is_dir() else folder
  ) as work:
    if inputs.isdecimal():
      found = _search(target, f'{seed} {name}', int(inputs), folder, work)
    else:
      found = _one(target, pathlib.Path(inputs).read_bytes(), work)
  (folder / 'found.json').write_text(
    json.dumps({**found._asdict(), 'content': ''}), encoding='utf-8'
  )
  sys.stdout.flush()
  # Threads of TensorFlow's may hold up the end of a process that has just been
  # refused memory.
  os._exit(0)


def _search(target, seed, inputs, folder, work):
  with open(folder / 'input', 'wb', buffering=0) as file:

    def note(content):
      file.truncate(0)
      file.seek(0)
      file.write(content)

    return search.search(target, seed, inputs, pathlib.Path(work), True, note)


def _one(target, content, work):
  watched = reached.Reached(target.modules)
  for seed in target.seeds:
    watched.run(target.parse, seed, pathlib.Path(work))
  outcome = search.attempt(
    target, content, pathlib.Path(work), watched, search.Limits(target)
  )
  return search.Found(
    1, int(outcome.is_accepted), 0, 0.0, outcome.failure, content, {}
  )


if __name__ == '__main__':
  main()
