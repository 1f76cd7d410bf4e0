"""The other end of `programs.Worker`: requests come in, one line each."""

import contextlib
import importlib
import io
import json
import sys
import traceback

import tensorflow as tf


def run(name, arguments):
  """Runs a program as from a shell; returns the fields of a `Finished`."""
  module = importlib.import_module(
    name if '.' in name else f'terngrad.bin.{name}'
  )
  out, err = io.StringIO(), io.StringIO()
  sys.argv = [name, *arguments]
  with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
    try:
      code = module.run()
    except Exception:
      err.write(traceback.format_exc())
      code = 1
  return {'code': code, 'out': out.getvalue(), 'err': err.getvalue()}


def main():
  tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices('CPU')[0],
    [tf.config.LogicalDeviceConfiguration()] * 4,
  )
  with open(sys.argv[1], encoding='utf-8') as requests:
    for line in requests:
      sys.stdout.write(json.dumps(run(**json.loads(line))) + '\n')
      sys.stdout.flush()


if __name__ == '__main__':
  main()
