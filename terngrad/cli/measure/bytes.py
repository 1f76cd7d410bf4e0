"""Counts the bytes per step by codec, algorithm and number of workers."""

import dataclasses

from terngrad import lazy
from terngrad.cli import command
from terngrad.config import options

bytes_table = lazy.module('terngrad.measure.bytes_table')
codec_table = lazy.module('terngrad.measure.codec_table')
errors = lazy.module('terngrad.errors')
tables = lazy.module('terngrad.measure.tables')

USAGE = """\
{program}: counts the bytes that a worker sends in a step.

  {program}
  {program} --codecs=ternary --codecs=error_feedback+stc --workers=2,8,64,512

For every code and number of workers, each in a separate process: the MB that a
process sends and receives with gather (all words to all processes), reduce
(integers in a ring), two_shot and slices (each process sums one slice and sends
the sums to all), and with the algorithms that --collective=auto chooses; and
the MB that it pushes to and pulls from a parameter server. Nothing is run:
these are the lengths that the exchanges use. A method with several messages
uses gather for those that an algorithm does not support.
"""

option = options.option


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeasureBytesFlags:
  """The flags of `terngrad measure bytes`."""

  codecs: tuple[str, ...] = option(
    (
      'identity',
      'fp16',
      'ternary',
      'eden3',
      'minmax:bits=4',
      'thc',
      'error_feedback+sign:decide=majority',
      'error_feedback+topk',
      'error_feedback+stc',
      'error_feedback+powersgd',
    ),
    "Codes, as the trainers' --codec spells them; repeat for several.",
    'codes',
    repeated=True,
  )
  net: str = option('alexnet', 'Net whose variables are coded.', 'model')
  workers: tuple[str, ...] = option(
    ('2', '8', '64', '512'), 'Numbers of workers.', 'cluster'
  )
  output: str = option('', 'Folder for measure_bytes.csv.', 'run')


def act(values: MeasureBytesFlags) -> None:
  """Prints the table, and writes it if --output names a directory."""
  counts = command.counts('workers', values.workers)
  (shapes,) = codec_table.cases((), (values.net,)).values()
  with errors.as_config_error():
    table = bytes_table.table(values.codecs, shapes, counts)
  command.say(f'{values.net}: MB a worker sends in a step')
  command.say(
    table.to_string(index=False, float_format='{:.4g}'.format, na_rep='')
  )
  if values.output:
    tables.write(values.output, 'measure_bytes', table)


COMMAND = command.Command(
  USAGE, MeasureBytesFlags, act, packages=('pandas', 'matplotlib')
)
