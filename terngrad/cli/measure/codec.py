"""Measures codes: time relative to a memory copy, and quality."""

import dataclasses
import functools
from collections.abc import Iterable
from collections.abc import Mapping
from typing import TYPE_CHECKING
from typing import Any

from terngrad import lazy
from terngrad import quiet
from terngrad.cli import command
from terngrad.codec.methods import registry
from terngrad.config import options

if TYPE_CHECKING:
  from terngrad.measure import turns as turn_types

codec_table = lazy.module('terngrad.measure.codec_table')
device_codec_table = lazy.module('terngrad.measure.device_codec_table')
devices = lazy.module('terngrad.cluster.devices')
progress = lazy.module('slim.datasets.records.progress')
tables = lazy.module('terngrad.measure.tables')
turns = lazy.module('terngrad.measure.turns')

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
XLA. Gradients are Gaussian. The works of a row take turns with the copy, round
by round, and a ratio is the median of the ratios within a round. Work that
takes seconds is timed in fewer rounds, at least 2. Each row is printed as soon
as it is measured, and the table of all at the end.

A code takes at most --max_seconds, with compiling, from small gradients to
large ones. A row that would take longer, by its time on the next smaller
gradient, is not measured, and says so. The smallest gradient is always
measured. A bar shows the seconds that are left.

  {program} --device=gpu:0

times the codes on a GPU: many launches of a work before one synchronization,
and a copy within the GPU's memory in the same way. Without --sizes and --nets
the gradient has 2^27 elements (512 MB), because smaller ones fit in the cache
and take less time than a launch. Errors and entropies are those of the CPU.
"""

option = options.option
# Shares the seconds of a code; no code has this name.
_RIVALS = 'other implementations'


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
    'Seconds for each code, with compiling. Rows that would exceed them are '
    'left out, except that of the smallest gradient.',
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
    size = codec_table.elements(shapes)
    if device and size < device_codec_table.CACHED_ELEMENTS:
      command.say(
        f'{name}: may fit in the cache of {values.device}, or take less time '
        'than a launch. Times show that instead.'
      )
  return cases


def _rows(values: MeasureCodecFlags, device: str) -> list[dict[str, Any]]:
  """Measures all cases; prints each row as soon as it is measured."""
  cases = _cases(values, device)
  measure = codec_table.measure
  if device:
    measure = functools.partial(device_codec_table.measure, device)
  # Small ones first: their times say whether larger ones fit.
  ascending = sorted(cases, key=lambda name: codec_table.elements(cases[name]))
  codecs = [*values.codecs, *([_RIVALS] if values.compare else [])]
  budgets = {text: turns.Budget(values.max_seconds) for text in codecs}
  rows: list[dict[str, Any]] = []
  with _bar(budgets) as bar:
    for cases_left, name in zip(
      range(len(cases), 0, -1), ascending, strict=True
    ):
      for number, text in enumerate(codecs):
        done = codecs[:number] if cases_left == 1 else []
        show = functools.partial(_show, bar, budgets, done, f'{name} {text}')
        show()
        given = cases[name], values.rounds
        share = budgets[text], cases_left
        if text == _RIVALS:
          found = codec_table.measure_rivals(name, *given, *share)
        else:
          found = measure(text, name, *given, show, *share)
        for row in found:
          rows.append(row)
          bar.say(codec_table.line(row))
  order = [*cases]
  return sorted(rows, key=lambda row: order.index(row['gradient']))


def _bar(budgets: 'Mapping[str, turn_types.Budget]') -> Any:
  """Returns a bar of the seconds of all codes."""
  return progress.Progress(
    total=max(1.0, sum(budget.seconds for budget in budgets.values())),
    bar_format='{desc}{percentage:3.0f}%|{bar}| {elapsed}',
  )


def _show(
  bar: Any,
  budgets: 'Mapping[str, turn_types.Budget]',
  done: Iterable[str],
  label: str,
) -> None:
  """Shows what is measured, and the seconds that it and the rest may take.

  Args:
    bar: the bar.
    budgets: by code.
    done: the codes that were measured in all cases.
    label: what is measured.
  """
  left = sum(
    max(0.0, budget.left)
    for text, budget in budgets.items()
    if text not in done
  )
  bar.set_description(f'{label}, at most {left:.0f} s left', refresh=False)
  bar.update(max(0.0, bar.total - left - bar.n))


COMMAND = command.Command(
  USAGE, MeasureCodecFlags, act, packages=('pandas', 'matplotlib', 'tqdm')
)
