"""What slim's two classifier programs share: TF-Slim's names for our options.

Their flags are those of TF-Slim; whatever a configuration has beyond them, such
as the gradient codes, they have under its own name.
"""

import dataclasses

from slim.nets import factory as nets
from slim.preprocessing import factory as preprocessing
from terngrad.program import flags

# What these said of several machines. Towers on one machine replace them.
_DISTRIBUTED = (
  'master',
  'worker_replicas',
  'num_ps_tasks',
  'task',
  'sync_replicas',
  'replicas_to_aggregate',
)


def without(config_class, names):
  """A configuration's options without some, as a base class.

  Args:
    config_class: frozen dataclass of `config.option`s.
    names: of the options that the subclass calls otherwise.

  Returns:
    A frozen dataclass.
  """
  kept = [f for f in dataclasses.fields(config_class) if f.name not in names]
  return dataclasses.make_dataclass(
    f'{config_class.__name__}Without',
    [
      (
        f.name,
        f.type,
        dataclasses.field(default=f.default, metadata=f.metadata),
      )
      for f in kept
    ],
    frozen=True,
    kw_only=True,
  )


def renamed(values, config_class, names, **changes):
  """The configuration that TF-Slim's flags describe.

  Args:
    values: dataclass of flags.
    config_class: what to make.
    names: dict of flag to field, where they differ.
    **changes: fields that are no flag's value.

  Returns:
    A `config_class`.
  """
  fields = {field.name for field in dataclasses.fields(config_class)}
  given = {
    names.get(flag.name, flag.name): getattr(values, flag.name)
    for flag in dataclasses.fields(values)
  }
  known = {name: value for name, value in given.items() if name in fields}
  return config_class(**(known | changes))


def refuse_distributed(values):
  """Refuses the flags that TF-Slim had for several machines.

  Raises:
    flags.UsageError: one of them is not at its default.
  """
  for field in dataclasses.fields(values):
    value = getattr(values, field.name)
    if field.name in _DISTRIBUTED and value != field.default:
      raise flags.UsageError(
        f'--{field.name}: expected {field.default!r}, as this program trains '
        f'on the devices of one machine; received {value!r}. Use --num_clones, '
        'with --num_nodes for more nodes than devices.'
      )


def net_of(model_name):
  """The net that TF-Slim calls so.

  Where the 2017 trainers have another one of the name, TF-Slim's is called
  slim_<name> in the table of nets.
  """
  own = f'slim_{model_name}'
  return own if own in nets.NETS else model_name


def image_size_of(net, image_size):
  """`image_size`, or the net's own where that is 0."""
  if image_size or net not in nets.NETS:
    return image_size or 1
  return nets.NETS[net].default_image_size


def preprocessing_of(model_name, preprocessing_name):
  """`preprocessing_name`, or what TF-Slim has for the model where that is ''.

  Raises:
    flags.UsageError: it has none.
  """
  if preprocessing_name:
    return preprocessing_name
  if model_name in preprocessing.PREPROCESSINGS:
    return model_name
  for prefix, name in _BY_MODEL.items():
    if model_name.startswith(prefix):
      return name
  raise flags.UsageError(
    f'--preprocessing_name: expected a name, because there is none for '
    f'--model_name={model_name}; received none. Use one of '
    f'{", ".join(sorted(preprocessing.PREPROCESSINGS))}.'
  )


_BY_MODEL = {'inception': 'inception', 'resnet': 'vgg', 'vgg': 'vgg'}
