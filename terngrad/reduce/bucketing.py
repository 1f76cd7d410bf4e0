"""Sorts the variables of a model into buckets, each with its method."""

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
  """Sorts variables into buckets by their code.

  Args:
    specs: the `policy.VariableSpec`s, in the order of the gradients.
    codes: the `method.Method` of each, from `policy.policy`.

  Returns:
    A `GradientCodec`. Where one or more methods must not be compiled, none
    wants to be: the others compile themselves.

  Raises:
    ValueError: there are more of the one than of the other.
  """
  if len(specs) != len(codes):
    raise ValueError(
      f'codes: expected one for each of {len(specs)} variables, received '
      f'{len(codes)}.'
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
  return _alike(buckets)


def on_kernels(codec: gradients.GradientCodec) -> gradients.GradientCodec:
  """The codec with native kernels, where its methods have some; for CPUs."""
  return with_methods(codec, lambda m: m.on_kernels())


def on_gpus(codec: gradients.GradientCodec) -> gradients.GradientCodec:
  """The codec with methods that suit GPUs better, where there are some."""
  return with_methods(codec, lambda m: m.on_gpus())


def in_float(
  codec: gradients.GradientCodec, plain: methods.Method
) -> gradients.GradientCodec:
  """The codec of float32 steps in a run whose other steps use `codec`.

  Args:
    codec: `GradientCodec`.
    plain: the `method.Method` of float32 gradients.

  Returns:
    A `GradientCodec` with the states of `codec`.
  """
  return with_methods(codec, lambda m: m.in_float(plain))


def with_methods(
  codec: gradients.GradientCodec,
  change: Callable[[methods.Method], methods.Method],
) -> gradients.GradientCodec:
  """The codec with other methods for the same buckets.

  Args:
    codec: `GradientCodec`.
    change: takes a `method.Method`, returns the one in its place.

  Returns:
    A `GradientCodec`.
  """
  buckets = []
  for bucket in codec.buckets:
    method = change(bucket.method)
    sizes = methods.sizes_of(bucket.shapes)
    counts = tuple(method.num_probes(size) for size in sizes)
    buckets.append(bucket._replace(method=method, num_probes=counts))
  return _alike(buckets)


def _alike(buckets: Sequence[buckets_lib.Bucket]) -> gradients.GradientCodec:
  """A `GradientCodec` whose methods are all to be compiled, or none."""
  if not all(bucket.method.compiled for bucket in buckets):
    buckets = [
      bucket._replace(method=wrapper.self_compiled(bucket.method))
      for bucket in buckets
    ]
  return gradients.GradientCodec(tuple(buckets))
