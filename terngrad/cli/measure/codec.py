"""Measures codes: time relative to a memory copy, and quality."""

import dataclasses
import functools
import math
import time
from typing import Any

from terngrad import lazy
from terngrad import quiet
from terngrad.cli import command
from terngrad.codec.methods import registry
from terngrad.config import options

codec_table = lazy.module('terngrad.measure.codec_table')
device_codec_table = lazy.module('terngrad.measure.device_codec_table')
devices = lazy.module('terngrad.cluster.devices')
progress = lazy.module('slim.datasets.records.progress')
tables = lazy.module('terngrad.measure.tables')

USAGE = """\
{program}: measures codes: speed, relative to a memory copy, and quality.

  {program}
  {program} --codecs=ternary --sizes=1.6e7 --compare

The codes are written as for the trainers' --codec: codes, methods of several
messages or rounds, wrappers and aliases, and codes of other packages. For each,
and for every size or list of a net's variables, one worker's first step is
measured:

- probe: the numbers that workers agree on; with a residual, also adding it;
- encode: this, the words of all rounds, and the new states of the worker;
- decode: the mean from the words of 1 worker; decode_sum: of 8 workers;
- finish: the states that depend on the mean, such as PowerSGD's residuals;
- update: decoding 2 workers' words and then updating parameters with momentum;
  fused_update: the same at once, if there is a kernel for it;
- the bits per element by formula and by length, the entropy of the codes, the
  squared error of one worker's mean (near 1 is normal for ternary and sparse
  codes), and a z-score of the bias.

Speeds are in GB/s of float32, and times relative to one copy of the gradient
(decode_sum: to 8 copies). Nothing is sent: communication between rounds is not
in these times. A dash means that a method does not have this work or number.

A code with native kernels is listed twice: with its kernels, and as compiled by
XLA. Gradients are Gaussian. The works of a code take turns with the copy, round
by round, and a ratio is the median of the ratios within a round. Work that
takes seconds is timed in fewer rounds, at least 2, and so are all works of a
code that used up its --max_seconds. A bar shows the time that is left. A line
with a code's result follows as soon as it is measured; the table of all comes
at the end.

  {program} --device=gpu:0

times the codes on a GPU: many launches of a work before one synchronization,
and a copy within the GPU's memory in the same way. Without --sizes and --nets
the gradient has 2^27 elements (512 MB), because smaller ones fit in the cache
and take less time than a launch. Errors and entropies are those of the CPU.
"""

option = options.option


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeasureCodecFlags:
  """The flags of `terngrad measure codec`."""

  codecs: tuple[str, ...] = option(
    (*registry.KINDS, *registry.METHODS),
    'Codes, NAME[:option=value,...]; repeat for several. {codecs}',
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
  max_seconds: float = option(
    40.0,
    'Seconds for each code, divided over its sizes and nets: after its share '
    'no further round begins, except the first 2.',
    'run',
  )
  compare: bool = option(
    False,
    'Also measure NumPy, naive TensorFlow and int8 as GRACE sends it.',
    'codes',
  )
  device: str = option(
    'cpu:0', 'Device that runs the codes: cpu:0, or a GPU as gpu:0.', 'devices'
  )
  output: str = option(
    '', 'Folder for measure_codec.csv and measure_codec.png.', 'run'
  )


def act(values: MeasureCodecFlags) -> None:
  """Prints the table, and writes it if --output names a directory."""
  command.at_least(1, values, 'rounds')
  command.at_least(0, values, 'max_seconds')
  codec_table.check(values.codecs)
  device = _accelerator(values)
  with quiet.suppressed_retracing_warnings():
    table = codec_table.table(_rows(values, device))
  command.say(table.to_string(index=False, na_rep='-'))
  if values.output:
    chart = codec_table.chart(table)
    tables.write(values.output, 'measure_codec', table, chart)


def _accelerator(values: MeasureCodecFlags) -> str:
  """Returns the full name of a device other than a CPU, or ''.

  Raises:
    terngrad.errors.ConfigError: the device does not exist, or is not the first
      CPU; or --compare is given with an accelerator.
  """
  if values.device.lower().strip('/') == 'cpu:0':
    return ''
  (device,) = devices.device_names([values.device])
  devices.check_exist([device])
  options.refuse(
    device.startswith('/CPU'),
    f'device: expected cpu:0 or a GPU, received {values.device}: CPU kernels '
    'use all cores. Use --device=cpu:0.',
  )
  options.refuse(
    values.compare,
    f'compare: expected it to be left out beside --device={values.device}, '
    'because the other implementations run on CPUs. Leave one of the two out.',
  )
  return str(device)


def _cases(
  values: MeasureCodecFlags, device: str
) -> dict[str, list[tuple[int, ...]]]:
  """Returns the gradient shapes by name; large ones for accelerators."""
  chosen = [values.sizes, values.nets]
  if device and all(options.is_default(values, n) for n in ('sizes', 'nets')):
    chosen = [device_codec_table.SIZES, ()]
  cases: dict[str, list[tuple[int, ...]]] = codec_table.cases(*chosen)
  for name, shapes in cases.items():
    size = sum(math.prod(shape) for shape in shapes)
    if device and size < device_codec_table.CACHED_ELEMENTS:
      command.say(
        f'{name}: may fit in the cache of {values.device}, or take less time '
        'than a launch. Times show that instead.'
      )
  return cases


def _rows(values: MeasureCodecFlags, device: str) -> list[dict[str, Any]]:
  """Measures all cases; prints a line as soon as a code is measured."""
  cases = _cases(values, device)
  measure = codec_table.measure
  if device:
    measure = functools.partial(device_codec_table.measure, device)
  total = len(cases) * len(values.codecs) * (values.rounds + 1)
  left = dict.fromkeys(values.codecs, values.max_seconds)
  rows: list[dict[str, Any]] = []
  with progress.Progress(total=total, unit='round') as bar:
    for number, (name, shapes) in enumerate(cases.items()):
      for text in values.codecs:
        bar.set_description(f'{name} {text}', refresh=False)
        begin = time.perf_counter()
        end = begin + left[text] / (len(cases) - number)
        found = measure(text, name, shapes, values.rounds, bar.update, end)
        left[text] = max(0.0, left[text] - (time.perf_counter() - begin))
        rows += found
        for row in found:
          bar.say(codec_table.line(row))
      if values.compare:
        rows += codec_table.measure_rivals(name, shapes, values.rounds)
  return rows


COMMAND = command.Command(
  USAGE, MeasureCodecFlags, act, packages=('pandas', 'matplotlib', 'tqdm')
)
