"""Checks the claims of conformance on a gradient code."""

import collections
import dataclasses
import os
import sys
from collections import Counter
from collections.abc import Mapping

from slim import errors as data_errors
from terngrad import errors
from terngrad import lazy
from terngrad import quiet
from terngrad import signals
from terngrad.cli import command
from terngrad.codec.methods import registry
from terngrad.config import options

claims = lazy.module('terngrad.conformance.claims')
subjects = lazy.module('terngrad.conformance.subject')

USAGE = """\
{program}: checks that a gradient code keeps the rules of all codes.

  {program} topk:ratio=0.1
  {program} error_feedback+predicted:decay=0.5
  {program} predicted --module=predicted:Predicted

The code is written as for --codec. It may be one of terngrad, one that a
package registers (an entry point in the group terngrad.codecs), or, with
--module, a class or function in a file of this folder that is not installed.

Three workers encode and decode gradients of several shapes and scales. One line
for each claim says whether the code keeps it:

  ok              zeros give zeros
  does not apply  mean of one worker is its estimate: estimates is False
  failed          scale is preserved: expected ..., received ... What to do.

The claims are about shapes, zeros, huge, subnormal and not finite elements, the
declared words, random numbers, traits and states, the mean of several workers,
sums of messages, and equal bits: eager and compiled, in parts, from several
devices, with and without kernels. Of the traits they check unbiased, lossless,
preserves_scale, averages, and whether randomness is private.
docs/add_a_codec.md shows how to write a code. It takes 10 s to a minute.

Exit code: 0 if every claim holds or does not apply, 1 if one failed, 2 if the
code could not be made.
"""

# Stands for the message of an earlier claim.
_SAME = 'the same error'

option = options.option


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckCodecFlags:
  """The flags of `terngrad check codec`."""

  code: str = option(
    '',
    'The code, NAME[:option=value,...], also given as a word. {codecs}',
    'codes',
  )
  module: str = option(
    '',
    'MODULE:NAME of the class or function that makes the code, imported from '
    'this folder or from the installed packages. Then no entry point is '
    'needed.',
    'codes',
  )
  skip: tuple[str, ...] = option(
    (),
    "Claims not to check, as they are printed: --skip='scale is preserved'.",
    'run',
  )


def act(values: CheckCodecFlags) -> int:
  """Prints one line per claim; returns `command.FAILED` if one failed."""
  extra = _extra_codes(values)
  with errors.as_config_error():
    registry.check_names(values.code, extra)
  with signals.block_while_importing():
    quiet.import_tensorflow()
  chosen = _chosen(values.skip)
  with errors.as_config_error():
    registry.method(values.code, 1, extra)
  subject = subjects.MethodUnderTest(
    values.code,
    lambda workers: registry.method(values.code, workers, extra),
  )
  counts: Counter[str] = collections.Counter()
  failures: Counter[str] = collections.Counter()
  with quiet.suppressed_retracing_warnings():
    for outcome in claims.check(subject, chosen):
      counts[outcome.state] += 1
      failures[outcome.message] += outcome.state == claims.FAILED
      message = _SAME if failures[outcome.message] > 1 else outcome.message
      colon = ': ' if message else ''
      command.say(f'{outcome.state:14}  {outcome.name}{colon}{message}')
  command.say(
    f'{values.code}: {counts[claims.OK]} claims hold, {counts[claims.FAILED]} '
    f'failed, {counts[claims.NOT_APPLICABLE]} do not apply'
  )
  for message, count in failures.items():
    if count > 1:
      command.say(f'{count} claims failed with one error: {message}')
  return command.FAILED if counts[claims.FAILED] else command.DONE


def _extra_codes(values: CheckCodecFlags) -> Mapping[str, str]:
  """Returns the code of --module by its name, importable from this folder."""
  if not values.module:
    return {}
  if os.getcwd() not in sys.path:
    sys.path.insert(0, os.getcwd())
  name = values.code.rpartition('+')[2].partition(':')[0]
  return {name: values.module}


def _chosen(skip: tuple[str, ...]) -> list[object]:
  """Returns the claims to check.

  Raises:
    slim.errors.UnknownNameError: a name in `skip` is no claim.
  """
  by_name = {claims.name_of(claim): claim for claim in claims.CLAIMS}
  left_out = [data_errors.lookup(by_name, name, 'claim') for name in skip]
  return [claim for claim in by_name.values() if claim not in left_out]


COMMAND = command.Command(
  USAGE,
  CheckCodecFlags,
  act,
  words=('code',),
  required=('code',),
  needs_tensorflow=False,
)
