"""Builds the codecs of coded steps, float32 steps and warm-up steps."""

from collections.abc import Sequence
from typing import NamedTuple

from terngrad import errors
from terngrad.cluster import devices as devices_lib
from terngrad.codec import method
from terngrad.codec import policy
from terngrad.codec.methods import registry
from terngrad.codec.methods import updates
from terngrad.config import codes as codes_lib
from terngrad.reduce import bucketing
from terngrad.reduce import fragments as fragments_lib
from terngrad.reduce import gradients
from terngrad.reduce import parts
from terngrad.reduce import states
from terngrad.step import model_variables


class RunCodecs(NamedTuple):
  """The codecs of a run, each for all variables.

  Attributes:
    codec: codec of the coded steps.
    in_float: codec of the float32 steps.
    warm_up: codecs of the warm-up, as (until, codec): used in steps < until.
      It is that of the method, if a method has one.
  """

  codec: gradients.GradientCodec
  in_float: gradients.GradientCodec
  warm_up: list[tuple[int, gradients.GradientCodec]]

  @property
  def names(self) -> list[str]:
    """Names of the methods of all buckets; processes compare them."""
    codecs = self.codec, *(codec for _, codec in self.warm_up)
    return [bucket.method.name for one in codecs for bucket in one.buckets]


def build(
  codes: codes_lib.RunMethods,
  part_bytes: int,
  plan: model_variables.ModelVariables,
  devices: Sequence[str],
  fragments: int = 1,
) -> RunCodecs:
  """Builds the codecs of a run.

  Args:
    codes: the methods of the run.
    part_bytes: float32 bytes of gradients per part; see `parts.cut`.
    plan: variables of the model.
    devices: names of the devices.
    fragments: number of fragments of the model; a step exchanges one.

  Raises:
    errors.ConfigError: a warm-up method has other states than the method of
      the run, or is beside a method with a warm-up; or there are fewer layers
      than fragments; or only some variables get updates.
  """
  specs = variable_specs(plan)
  with errors.as_config_error():
    numbers = fragments_lib.strided(specs, fragments)

  def build_codec(code: method.Method) -> gradients.GradientCodec:
    rules = [*codes.rules, (policy.always, code)]
    with errors.as_config_error():
      methods = updates.complete(policy.policy(rules, specs))
    codec = bucketing.gradient_codec(specs, methods)
    codec = fragments_lib.split(codec, numbers)
    return parts.cut(on_devices(codec, devices), part_bytes)

  codec = build_codec(codes.code)
  in_float = bucketing.in_float(codec, registry.method('identity'))
  if steps := updates.float_steps([b.method for b in codec.buckets]):
    if fragments > 1:
      raise errors.ConfigError(
        f'fragments: expected 1 beside {codes.code.name}, whose first {steps} '
        f'steps are those of all variables, received {fragments}. Leave '
        '--fragments out, or choose another --codec.'
      )
    if codes.warm_up:
      raise errors.ConfigError(
        f'codec_warm_up: expected none beside {codes.code.name}, whose first '
        f'{steps} steps are float32. Set its option warm_up.'
      )
    return RunCodecs(codec, in_float, [(steps, in_float)])
  warm_up = []
  for until, code in codes.warm_up:
    stage = in_float if code.traits.lossless else build_codec(code)
    if stage is not in_float:
      _check_states(code, stage, codec)
    warm_up.append((until, stage))
  return RunCodecs(codec, in_float, warm_up)


def _check_states(
  code: method.Method,
  stage: gradients.GradientCodec,
  codec: gradients.GradientCodec,
) -> None:
  """Raises `errors.ConfigError` unless a stage has the states of the run."""
  stage_states, run_states = (
    {
      key: state._replace(initial=None)
      for key, state in states.declarations(one).items()
    }
    for one in (stage, codec)
  )
  if stage_states != run_states:
    names = [
      ', '.join(sorted({key.name for key in known})) or 'none'
      for known in (stage_states, run_states)
    ]
    raise errors.ConfigError(
      'codec_warm_up: expected states with the same names and shapes as those '
      f'of --codec ({names[1]}), received those of {code.name} ({names[0]}). '
      'Put the same error_feedback+ before both.'
    )


def variable_specs(
  plan: model_variables.ModelVariables,
) -> list[policy.VariableSpec]:
  """Describes each trained parameter for a policy: name, shape, logits."""
  return [
    policy.VariableSpec(name, tuple(variable.shape), is_logits(name))
    for name, variable in zip(plan.names, plan.trainable, strict=False)
  ]


def on_devices(
  codec: gradients.GradientCodec, devices: Sequence[str]
) -> gradients.GradientCodec:
  """Chooses the fastest implementation of a codec for the devices.

  A mix of CPUs and GPUs leaves the codec unchanged, and so do GPUs of several
  tasks: only this task loads the GPU kernels.
  """
  if devices_lib.types(devices) == {'CPU'}:
    return bucketing.on_kernels(codec)
  reason = why_no_gpu_kernels(devices)
  return codec if reason else bucketing.on_gpus(codec)


def why_no_gpu_kernels(devices: Sequence[str]) -> str | None:
  """Returns why codecs on these devices use no GPU kernels; None if they may.

  Args:
    devices: names, not only of CPUs.
  """
  if devices_lib.types(devices) != {'GPU'}:
    return 'CPUs compute too'
  if devices_lib.count_tasks(devices) > 1:
    return 'several processes have the GPUs'
  return None


def is_logits(name: str, layers: Sequence[str] = ('logits',)) -> bool:
  """Returns whether the layer of a variable is among `layers`.

  The layer is the first component of the variable's name.
  """
  return name.split('/')[0] in layers
