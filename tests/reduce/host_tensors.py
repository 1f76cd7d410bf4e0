"""Which tensors of a traced step a GPU would keep in host memory.

  python -m tests.reduce.host_tensors [CODEC...]

TensorFlow keeps many int32 tensors in host memory on GPUs, and words that pass
through them cross PCIe. No GPU is needed to find them: the registry of kernels
lists for every operation the data types and the arguments in host memory. The
walk visits the operations of a graph and of the functions that it calls, except
of functions that XLA compiles, whose tensors stay on the device. Operations
without a device count as placed on the GPU.

The table has a line for each code and a column for each mode, with the number
of tensors above 4 KB that are in host memory, have no kernel, enter or leave a
function as int32, or are copied to a CPU.
"""

import argparse
import collections
import functools
import sys
from typing import NamedTuple

import tensorflow as tf
from tensorflow.core.framework import types_pb2
from tensorflow.python.framework import kernels

LEAST_BYTES = 4096
HOST, NO_KERNEL, BOUNDARY, COPY = 'host', 'no kernel', 'boundary', 'copy'
TO_GPU, FROM_GPU = 'to the GPU', 'from the GPU'
# Functions' arguments; `walk` looks at the operations that call them.
_ARGUMENTS = ('Placeholder', 'NoOp')


class HostTensor(NamedTuple):
  """A large tensor that does not stay on the GPU.

  Attributes:
    kind: HOST: its kernel takes it from host memory or leaves it there.
      NO_KERNEL: the operation has no kernel for GPUs. BOUNDARY: it enters or
      leaves a function as int32. COPY: an operation on a CPU reads it.
    operation: type of the operation.
    argument: name of the operation's argument.
    dtype: name of the data type.
    shape: text.
    name: of the tensor.
  """

  kind: str
  operation: str
  argument: str
  dtype: str
  shape: str
  name: str


def walk(graph):
  """Returns the `HostTensor`s of a traced function."""
  return _walk(graph) + [
    _host_tensor(BOUNDARY, tensor.op, 'result', tensor)
    for tensor in graph.outputs
    if tensor.dtype == tf.int32 and _is_large(tensor)
  ]


def _walk(graph):
  """Those of a graph and of the functions that it calls."""
  found = []
  for op in graph.get_operations():
    if op.type in _ARGUMENTS:
      continue
    bodies = _functions(op, graph)
    if is_on_cpu(op):
      found += [
        _host_tensor(COPY, op, name, tensor)
        for name, tensor, is_input in _arguments(op)
        if is_input and _is_large(tensor) and not is_on_cpu(tensor.op)
      ]
    elif bodies or 'f' in op.node_def.attr:
      found += _at_boundary(op)
    else:
      found += _on_gpu(op)
    for body in bodies:
      found += _walk(body)
  return found


def operations(graph):
  """Yields the operations of a graph and of the functions that it calls."""
  for op in graph.get_operations():
    yield op
    for body in _functions(op, graph):
      yield from operations(body)


class SmallCopy(NamedTuple):
  """A tensor of any size that is copied between host and GPU in a step.

  Attributes:
    direction: TO_GPU or FROM_GPU.
    operation: type of the operation that reads the copy.
    argument: name of its argument.
    dtype: name of the data type.
  """

  direction: str
  operation: str
  argument: str
  dtype: str


def copies(graph):
  """Returns the set of `SmallCopy`s of a traced function.

  The branches of a condition do not count, nor what enters a function.
  """
  found = set()
  for op in graph.get_operations():
    if op.type in _ARGUMENTS:
      continue
    if op.type not in ('If', 'StatelessIf'):
      for body in _functions(op, graph):
        found |= copies(body)
    for name, tensor, is_input in _arguments(op):
      if is_input and _has_memory(tensor) and tensor.op.type not in _ARGUMENTS:
        is_read_there = _is_on_host(op, name, tensor)
        name_there = _output_name(tensor)
        if is_read_there != _is_on_host(tensor.op, name_there, tensor):
          way = FROM_GPU if is_read_there else TO_GPU
          found.add(SmallCopy(way, op.type, name, tensor.dtype.name))
  return found


def _is_on_host(op, argument, tensor):
  """Whether an operation has an argument or a result in host memory."""
  if is_on_cpu(op):
    return True
  if op.type not in ('If', 'StatelessIf') and 'f' in op.node_def.attr:
    return tensor.dtype == tf.int32
  host = host_arguments(op)
  return host is None or argument in host or _is_passed_on_host(op, tensor)


def _is_passed_on_host(op, tensor):
  """Whether a loop or a condition passes a tensor on in host memory."""
  passes = any(one.HasField('func') for one in op.node_def.attr.values())
  return passes and tensor.dtype == tf.int32


def _output_name(tensor):
  for name, output, is_input in _arguments(tensor.op):
    if not is_input and output is tensor:
      return name
  raise ValueError(f'{tensor.name}: expected an output of its operation.')


def _has_memory(tensor):
  return tensor.dtype not in (tf.resource, tf.variant, tf.string)


def is_on_cpu(op):
  """Whether an operation is placed on a CPU."""
  return tf.DeviceSpec.from_string(op.device or '').device_type == 'CPU'


def _at_boundary(op):
  return [
    _host_tensor(BOUNDARY, op, name, tensor)
    for name, tensor, _ in _arguments(op)
    if tensor.dtype == tf.int32 and _is_large(tensor)
  ]


def _on_gpu(op):
  if op.type == 'EnsureShape' and not _is_large(op.outputs[0]):
    return []
  large = [
    (name, tensor) for name, tensor, _ in _arguments(op) if _is_large(tensor)
  ]
  if not large:
    return []
  host = host_arguments(op)
  if host is None:
    return [_host_tensor(NO_KERNEL, op, *pair) for pair in large]
  return [_host_tensor(HOST, op, *pair) for pair in large if pair[0] in host]


def _host_tensor(kind, op, argument, tensor):
  shape = str(tensor.shape)
  return HostTensor(
    kind, op.type, argument, tensor.dtype.name, shape, tensor.name
  )


def host_arguments(op):
  """The arguments of an operation that its GPU kernel has in host memory.

  Returns:
    Set of names; None if there is no kernel for its data types.
  """
  for device in ('GPU', 'DEFAULT'):
    for kernel in _kernels(op.type):
      if kernel.device_type == device and _accepts(kernel, op.node_def):
        return set(kernel.host_memory_arg)
  return None


@functools.cache
def _kernels(operation):
  return list(kernels.get_registered_kernels_for_op(operation).kernel)


def _accepts(kernel, node):
  if kernel.label:
    return False
  for constraint in kernel.constraint:
    value = node.attr[constraint.name]
    types = list(value.list.type) or [value.type]
    allowed = constraint.allowed_values.list.type
    if types != [types_pb2.DT_INVALID] and not set(types) <= set(allowed):
      return False
  return True


def _arguments(op):
  """Yields (name of the argument, tensor, whether it is an input)."""
  node, definition = op.node_def, op.op_def
  pairs = (definition.input_arg, op.inputs), (definition.output_arg, op.outputs)
  for arguments, tensors in pairs:
    rest = iter(tensors)
    for argument in arguments:
      count = 1
      if argument.number_attr:
        count = node.attr[argument.number_attr].i
      elif argument.type_list_attr:
        count = len(node.attr[argument.type_list_attr].list.type)
      for _ in range(count):
        yield argument.name, next(rest), arguments is pairs[0][0]


def _is_large(tensor):
  """Whether a tensor has more than `LEAST_BYTES`, or of unknown shape may."""
  count = tensor.shape.num_elements()
  return _has_memory(tensor) and (
    count is None or count * tensor.dtype.size > LEAST_BYTES
  )


def _functions(op, graph):
  """The graphs of the functions that an operation calls, but for XLA's."""
  names = []
  for attribute in op.node_def.attr.values():
    names += [attribute.func.name] if attribute.HasField('func') else []
    names += [one.name for one in attribute.list.func]
  called = [graph._get_function(name) for name in names]
  return [one.graph for one in called if not _is_compiled(one)]


def _is_compiled(function):
  attributes = function.cached_definition.attr
  return '_XlaMustCompile' in attributes and attributes['_XlaMustCompile'].b


def describe(found):
  """Counts by kind, operation and argument, the most frequent first."""
  counts = collections.Counter(
    (one.kind, one.operation, one.argument, one.dtype) for one in found
  )
  return [(count, *key) for key, count in counts.most_common()]


def main():
  """Prints the table."""
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('codecs', nargs='*', default=['ternary'])
  parser.add_argument('--details', action='store_true')
  options = parser.parse_args()
  from tests.reduce import gpu_steps

  for codec in options.codecs:
    row = []
    for mode in gpu_steps.MODES:
      found = walk(gpu_steps.trace(codec, mode))
      row.append(f'{len(found):5d}')
      if options.details:
        for line in describe(found):
          sys.stdout.write(f'  {mode}: {line}\n')
    sys.stdout.write(f'{" ".join(row)}  {codec}\n')
    sys.stdout.flush()


if __name__ == '__main__':
  main()
