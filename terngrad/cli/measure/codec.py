"""Measures codecs: time relative to a memory copy, and quality."""

import dataclasses
import sys
from typing import Any

from terngrad import lazy
from terngrad.cli import command
from terngrad.codec.methods import registry
from terngrad.config import options

codec_table = lazy.module('terngrad.measure.codec_table')
tables = lazy.module('terngrad.measure.tables')

USAGE = """\
{program}: measures codecs: speed, relative to a memory copy, and quality.

  {program}
  {program} --codecs=ternary --sizes=1.6e7 --compare

For every codec, and every size or list of a net's variables, it measures

- the speed of probing and encoding, of decoding one payload, and of decoding
  the sum of 8 payloads: in GB/s of float32, and as time relative to one copy of
  the gradient (the sum: to 8 copies);
- the time to decode the sum of 2 payloads and update parameters with momentum,
  relative to one copy: one after the other (update) and, if there is a kernel
  for it, at once (fused_update);
- the bits per element by formula and by length, the entropy of the codes, the
  squared error, and a z-score of the bias.

A codec with native kernels is listed twice: with its kernels, and as compiled
by XLA. Gradients are Gaussian. Measurements take turns, round by round, and a
ratio is the median of the ratios within a round.
"""

option = options.option


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeasureCodecFlags:
  """The flags of `terngrad measure codec`."""

  codecs: tuple[str, ...] = option(
    registry.KINDS,
    "Codecs, as the trainers' --codec spells them; repeat for several.",
    'codes',
    repeated=True,
  )
  sizes: tuple[str, ...] = option(
    ('1e3', '1e4', '1e5', '1e6', '1e7', '1e8'),
    'Sizes of single gradients, in elements.',
    'codes',
  )
  nets: tuple[str, ...] = option(
    ('cifar10_alexnet', 'lenet'),
    'Nets whose variables are measured.',
    'model',
  )
  rounds: int = option(11, 'Number of rounds for the median.', 'run')
  compare: bool = option(
    False,
    'Also measure NumPy, naive TensorFlow and int8 as GRACE sends it.',
    'codes',
  )
  output: str = option(
    '', 'Folder for measure_codec.csv and measure_codec.png.', 'run'
  )


def act(values: MeasureCodecFlags) -> None:
  """Prints the table, and writes it if --output names a directory."""
  codecs = codec_table.codecs(values.codecs)
  rows: list[dict[str, Any]] = []
  for name, shapes in codec_table.cases(values.sizes, values.nets).items():
    sys.stderr.write(f'{name}\n')
    rows += codec_table.measure(
      codecs, name, shapes, values.rounds, values.compare
    )
  table = codec_table.table(rows)
  command.say(table.to_string(index=False))
  if values.output:
    chart = codec_table.chart(table)
    tables.write(values.output, 'measure_codec', table, chart)


COMMAND = command.Command(USAGE, MeasureCodecFlags, act)
