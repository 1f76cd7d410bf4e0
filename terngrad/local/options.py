"""Options of local steps, and the processes that exchange."""

import dataclasses
import json
import os
from collections.abc import Container
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import TypeAlias

from slim import spelling
from terngrad import arguments
from terngrad.cluster import resolvers
from terngrad.cluster import spec
from terngrad.recipes import catalog

NONE, DELAYED, EAGER = OVERLAPS = ('none', 'delayed', 'eager')
WAIT, CONTINUE = LOSS_POLICIES = ('wait', 'continue')
CodecTexts: TypeAlias = str | dict[str, str]


@dataclasses.dataclass(frozen=True)
class LocalOptions:
  """Options of local steps; all processes need the same.

  Attributes:
    every: H, number of local steps between two exchanges.
    codec: a text as for `--codec`, or a dict from regular expressions of
      variable names to such texts.
    outer: the outer optimizer, a text as for `--optimizer`.
    outer_learning_rate: of the outer optimizer. 1 with gd averages parameters.
    overlap: of `OVERLAPS`. NONE waits for the mean change. DELAYED applies it
      at the next exchange. EAGER applies the local share now and the share of
      the others at the next exchange.
    on_lost_worker: of `LOSS_POLICIES`. WAIT waits until the lost process has
      been started again. CONTINUE goes on without it.
    lost_after: seconds without a heartbeat after which a process is lost. A
      process that ends is detected at once.
    seed: integer, seed of the random codes.
  """

  every: int
  codec: CodecTexts = 'identity'
  outer: str = 'gd'
  outer_learning_rate: float = 1.0
  overlap: str = NONE
  on_lost_worker: str = WAIT
  lost_after: float = 60.0
  seed: int = 0

  def __post_init__(self) -> None:
    """Refuses values out of range.

    Raises:
      ValueError: names the option, what was expected and what was received.
    """
    # As int and float: the helper gets them as JSON.
    for name, least in (('every', 1), ('seed', -(2**63))):
      whole = arguments.whole_number(name, getattr(self, name), least)
      object.__setattr__(self, name, whole)
    choices = {'overlap': OVERLAPS, 'on_lost_worker': LOSS_POLICIES}
    for name, known in choices.items():
      value = getattr(self, name)
      if value not in known:
        raise ValueError(
          f'{name}: expected one of {", ".join(known)}, received {value!r}. '
          f'Use {name}={known[0]!r}.'
        )
    for name in ('outer_learning_rate', 'lost_after'):
      number = arguments.above_zero(name, getattr(self, name))
      object.__setattr__(self, name, number)
    for name, kinds in (('outer', str), ('codec', str | dict)):
      value = getattr(self, name)
      if not isinstance(value, kinds):
        raise ValueError(
          f'{name}: expected a text, received {value!r}. Use {name}='
          f'{LocalOptions.__dataclass_fields__[name].default!r}.'
        )
    codec = self.codec
    texts = [*codec.values()] if isinstance(codec, dict) else [codec]
    if self.on_lost_worker == CONTINUE and any(map(_needs_workers, texts)):
      raise ValueError(
        'codec: expected bidirectional without the option workers beside '
        f"on_lost_worker='continue', received {codec!r}. Leave workers "
        'out: it is the number of processes that there are.'
      )


def _needs_workers(text: str) -> bool:
  """Returns True for a code that needs exactly the workers that it names."""
  found = map(spelling.split, text.split('+'))
  return any(
    name == 'bidirectional' and any(o.startswith('workers=') for o in options)
    for name, options in found
  )


def with_recipe(
  name: str, given: Mapping[str, Any]
) -> tuple[dict[str, Any], str]:
  """Completes arguments by those of a recipe.

  Args:
    name: of a recipe; '' for none.
    given: `every` and other arguments of `LocalOptions`; None if the user did
      not set one.

  Returns:
    (the arguments that are set; a line for the log, '' without a recipe).

  Raises:
    ValueError: the recipe is unknown, or `every` is not set.
  """
  values = {k: v for k, v in given.items() if v is not None}
  if not name:
    if 'every' not in values:
      raise ValueError(
        'every: expected a number of local steps or a recipe, received '
        "neither. Use every=30, or recipe='sparseloco'."
      )
    return values, ''
  found = catalog.find(name)
  values = found.arguments() | values
  shown = {key: values[key] for key in found.arguments()}
  return values, found.describe(shown)


def find_cluster(environment: Mapping[str, str] = os.environ) -> spec.Cluster:
  """Reads the cluster from TF_CONFIG; without it there is one process.

  Raises:
    spec.ClusterError: TF_CONFIG is invalid, or this process is no worker.
  """
  text = environment.get('TF_CONFIG', '')
  if not text:
    return spec.Cluster({'worker': ('localhost:1',)}, 'worker', 0)
  cluster = resolvers.from_tf_config(text)
  if cluster.job != 'worker' or 'ps' in cluster.jobs:
    raise spec.ClusterError(
      'TF_CONFIG: expected workers only, as local steps have no parameter '
      f'servers, received the jobs {", ".join(cluster.jobs)}. Start the '
      'program with `terngrad launch -n 2 -- python my_program.py`.'
    )
  return cluster


def without(cluster: spec.Cluster, lost: Container[str]) -> spec.Cluster:
  """Returns a cluster of workers without the lost ones."""
  addresses = [a for a in cluster.jobs['worker'] if a not in lost]
  index = addresses.index(cluster.jobs['worker'][cluster.index])
  return spec.Cluster({'worker': tuple(addresses)}, 'worker', index)


def shared_fields(
  options: LocalOptions,
  specs: Sequence[tuple[str, Sequence[int]]],
  statistics: Sequence[Sequence[int]],
) -> dict[str, Any]:
  """Returns by name what all processes need the same of.

  Names of parameters are among it only if they choose codes.

  Args:
    options: of the run.
    specs: name and shape of each parameter.
    statistics: shape of each array of statistics.
  """
  fields = dataclasses.asdict(options) | {
    'parameters': [shape for _, shape in specs],
    'statistics': statistics,
  }
  if isinstance(options.codec, dict):
    fields['names of parameters'] = [name for name, _ in specs]
  return fields


def encode(options: LocalOptions, **more: Any) -> str:
  """Writes options and other values of the helper's command line as JSON."""
  return json.dumps({'options': dataclasses.asdict(options), **more})


def decode(text: str) -> tuple[LocalOptions, dict[str, Any]]:
  """Reads (options, other values) from the result of `encode`."""
  values = json.loads(text)
  return LocalOptions(**values.pop('options')), values
