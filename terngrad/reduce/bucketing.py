"""Groups the variables of a model into buckets, one method each."""

import functools
from collections.abc import Callable
from collections.abc import Sequence

from terngrad.codec import coded
from terngrad.codec import method as methods
from terngrad.codec import policy
from terngrad.codec import wrapper
from terngrad.reduce import buckets as buckets_lib
from terngrad.reduce import gradients


def gradient_codec(
  specs: Sequence[policy.VariableSpec], codes: Sequence[methods.Method]
) -> gradients.GradientCodec:
  """Groups variables by their code and makes the codec of the model.

  If XLA must not compile one of the methods, the codec is not compiled as a
  whole; the other methods then compile themselves.

  Args:
    specs: in the order of the gradients.
    codes: the code of each variable, from `policy.policy`.

  Raises:
    ValueError: `specs` and `codes` differ in length.
  """
  if len(specs) != len(codes):
    raise ValueError(
      f'codes: expected one for each of {len(specs)} variables, received '
      f'{len(codes)}. Pass one code per variable, in the same order.'
    )
  buckets = []
  for stream, code in enumerate(dict.fromkeys(codes)):
    indices = tuple(i for i, c in enumerate(codes) if c == code)
    sizes = [specs[i].num_elements for i in indices]
    method = coded.as_method(code)
    buckets.append(
      buckets_lib.Bucket(
        method=method,
        indices=indices,
        shapes=tuple(tuple(specs[i].shape) for i in indices),
        num_probes=tuple(method.num_probes(size) for size in sizes),
        num_elements=sum(sizes),
        stream=stream,
      )
    )
  return _build(buckets)


def on_kernels(codec: gradients.GradientCodec) -> gradients.GradientCodec:
  """Replaces methods by those with native CPU kernels, where they exist."""
  return replace_methods(codec, lambda m: m.on_kernels())


def on_gpus(codec: gradients.GradientCodec) -> gradients.GradientCodec:
  """Replaces methods by those that suit GPUs better, where they exist."""
  return replace_methods(codec, lambda m: m.on_gpus())


def in_float(
  codec: gradients.GradientCodec, plain: methods.Method
) -> gradients.GradientCodec:
  """Makes the codec of float32 steps in a run whose other steps use `codec`.

  It has the states of `codec`. `plain` is the method of float32 gradients.
  """
  return replace_methods(codec, lambda m: m.in_float(plain))


def replace_methods(
  codec: gradients.GradientCodec,
  change: Callable[[methods.Method], methods.Method],
) -> gradients.GradientCodec:
  """Replaces the method of each bucket by `change` of it.

  Buckets that share a method share the new one, with what XLA compiles for it.
  """
  change = functools.cache(change)
  buckets = []
  for bucket in codec.buckets:
    method = change(bucket.method)
    sizes = methods.sizes_of(bucket.shapes)
    counts = tuple(method.num_probes(size) for size in sizes)
    buckets.append(bucket._replace(method=method, num_probes=counts))
  return _build(buckets)


def _build(buckets: Sequence[buckets_lib.Bucket]) -> gradients.GradientCodec:
  """Makes a codec whose methods are either all compiled by XLA or none."""
  if not all(bucket.method.compiled for bucket in buckets):
    self_compiled = functools.cache(wrapper.self_compiled)
    buckets = [
      bucket._replace(method=self_compiled(bucket.method)) for bucket in buckets
    ]
  return gradients.GradientCodec(tuple(buckets))
