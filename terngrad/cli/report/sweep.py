"""Reports on an experiment of many runs: spreads, differences, a page."""

import dataclasses
import os

from terngrad import lazy
from terngrad.cli import command
from terngrad.config import options
from terngrad.report.statistics import sweep_rules

sweep = lazy.module('terngrad.report.sweep')
sweep_page = lazy.module('terngrad.report.sweep_page')

USAGE = """\
{program}: reports means, spreads and paired differences of many runs.

  {program} --results=experiments/lenet_codecs/results.csv \\
      --baseline=float32 --output=O

Reads the results.csv that `terngrad sweep` writes after every run. For every
variant: accuracy with standard deviation and interval over the seeds, its
difference to the baseline seed by seed, bits per element, seconds and, from
failures.csv in the same folder, the failed runs. Writes sweep.csv, sweep.md,
sweep.png (accuracy over bits and seconds) and sweep.html, which needs no other
file.
"""

option = options.option


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportSweepFlags:
  """The flags of `terngrad report sweep`."""

  results: str = option('', 'results.csv of an experiment.', 'run')
  baseline: str = option(
    '', 'Variant with which the others are compared.', 'run'
  )
  level: float = option(95.0, 'Level of the intervals in %.', 'run')
  output: str = option(
    '', 'Folder for table, plot and page; empty: only print.', 'run'
  )


def act(values: ReportSweepFlags) -> None:
  """Prints the table, and writes the report if --output is given."""
  options.in_range('level', values.level, *sweep_rules.LEVELS)
  rules = sweep_rules.SweepRules(values.level)
  runs = sweep.read(values.results)
  baselines = {}
  if values.baseline:
    baselines = dict.fromkeys(runs['variant'], values.baseline)
  source = os.path.dirname(os.path.abspath(values.results))
  if not values.output:
    failures = sweep.read_failures(source)
    table = sweep.summary(runs, baselines, failures, rules)
    command.say(sweep.as_text(table, sweep_page.notes(runs, rules)))
    return
  title = os.path.basename(source)
  command.say(sweep.write(values.output, title, runs, baselines, source, rules))


COMMAND = command.Command(
  USAGE,
  ReportSweepFlags,
  act,
  required=('results',),
  packages=('pandas', 'matplotlib'),
)
