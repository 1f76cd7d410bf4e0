"""Python programs in processes that find TensorFlow imported, to their end."""

import subprocess
import tempfile

from terngrad.sweep import warm


def run(module, *arguments, folder=None, environment=None, limit=300):
  """Runs a program to its end, as `start`; a `subprocess.CompletedProcess`.

  A program that takes longer than `limit` seconds is killed.
  """
  with tempfile.TemporaryFile('w+') as out, tempfile.TemporaryFile('w+') as err:
    process = warm.start(module, arguments, out, err, folder, environment)
    process.join(limit)
    process.kill()
    process.join()
    texts = []
    for file in (out, err):
      file.seek(0)
      texts.append(file.read())
    done = subprocess.CompletedProcess(arguments, process.exitcode, *texts)
    process.close()
  return done
