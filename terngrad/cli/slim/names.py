"""Shared flags of the two TF-Slim commands: their names for our options.

The commands have TF-Slim's flags. Options that TF-Slim lacks, such as the
gradient codec, keep the configuration's names.
"""

from collections.abc import Mapping
from typing import Any

from terngrad import lazy
from terngrad.cli import flags

nets = lazy.module('slim.nets.factory')
preprocessing = lazy.module('slim.preprocessing.factory')


def flag_names(names: Mapping[str, str]) -> dict[str, str]:
  """Returns TF-Slim's names by ours, for our names that contain '_'."""
  return {name: flag for flag, name in names.items() if '_' in name}


def check(values: Any) -> None:
  """Refuses flags that neither TF-Slim command supports.

  Args:
    values: dataclass of flags, with dataset_dir.

  Raises:
    flags.UsageError: --master is set, or --dataset_dir is empty.
  """
  if values.master:
    raise flags.UsageError(
      '--master: expected nothing, since every task gets the hosts of all '
      f'tasks; received {values.master[:200]!r}. To train on several machines '
      'give every task --worker_hosts, --ps_hosts, --job_name and --task.'
    )
  if not values.dataset_dir:
    raise flags.UsageError(
      '--dataset_dir: expected the folder of the data set, received none. Make '
      'one with `terngrad convert dataset`.'
    )


def net_fields(values: Any, image_size: int) -> dict[str, Any]:
  """Returns configuration fields whose defaults depend on the net.

  Args:
    values: dataclass of flags.
    image_size: in pixels, or 0 for the net's default.

  Returns:
    Values by field name.

  Raises:
    slim.errors.UnknownNameError: there is no such net.
    flags.UsageError: the net has no default preprocessing, and no flag sets
      one.
  """
  name = nets.slim_name(values.model_name)
  net = nets.NETS[name]
  chosen = values.preprocessing_name or net.preprocessing
  if not chosen:
    raise flags.UsageError(
      f'--preprocessing_name: expected a name, because '
      f'--model_name={values.model_name} has no default; received none. Use '
      f'one of {", ".join(sorted(preprocessing.PREPROCESSINGS))}.'
    )
  return {
    'net': name,
    'image_size': image_size or net.default_image_size,
    'preprocessing': chosen,
    'dropout_keep_prob': values.dropout_keep_prob or net.dropout_keep_prob,
  }
