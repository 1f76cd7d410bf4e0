"""Cuts a functional Keras model into segments joined by single tensors.

A cut is a tensor through which all data flow: everything after it is computed
from this tensor and from no other tensor before it. Each residual unit, block
of Inception and layer of VGG ends in a cut.
"""

import math
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple
from typing import TypeAlias

import keras
import tensorflow as tf

from terngrad import errors
from terngrad.step import passes

# A call of a layer. Keras has no public name for it.
_Node: TypeAlias = Any


class Segment(NamedTuple):
  """A part of a model, from one cut to the next.

  Attributes:
    model: shares its layers with the whole model. Its input is the cut before.
      Its outputs are the next cut, unless the segment is the last, and the
      whole model's outputs with the indices `outputs`.
    trainable: indices of its parameters in the whole model's
      `trainable_variables`.
    non_trainable: indices of its values in the whole model's
      `non_trainable_variables`.
    outputs: indices of the whole model's outputs that it computes.
    num_bytes: bytes of its layers' outputs for one example.
  """

  model: keras.Model
  trainable: tuple[int, ...]
  non_trainable: tuple[int, ...]
  outputs: tuple[int, ...]
  num_bytes: int

  def __call__(
    self,
    parameters: Sequence[tf.Tensor],
    state: Sequence[tf.Tensor],
    inputs: tf.Tensor,
  ) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    """Runs the segment in training mode.

    Args:
      parameters: values of the whole model's `trainable_variables`.
      state: values of its `non_trainable_variables`.
      inputs: the cut before the segment, [b, ...].

    Returns:
      (outputs of `model`, new values of the variables `non_trainable`).

    Raises:
      errors.ConfigError: layers add losses of their own.
    """
    results, new_values, losses = self.model.stateless_call(
      [parameters[i] for i in self.trainable],
      [state[i] for i in self.non_trainable],
      inputs,
      training=True,
      return_losses=True,
    )
    if passes.added_losses(self.model, losses):
      raise errors.ConfigError(
        'optimize_gradient_memory: expected layers that add no losses, '
        f'received an activity regularizer or add_loss in {self.model.name}. '
        'Leave optimize_gradient_memory out.'
      )
    return results if isinstance(results, list) else [results], new_values


def cut_model(model: keras.Model) -> list[Segment]:
  """Cuts a model so that recomputation by segments takes the least memory.

  While a segment is differentiated, memory holds its activations and all cuts
  before it. The search tries budgets of 1/1, 1/2, 1/3, ... of the bytes of all
  activations. For each budget it takes the cuts with the fewest bytes such that
  no segment exceeds the budget, as far as the possible cuts allow. The plan
  with the lowest peak wins. A net of n equal layers gets about sqrt(n)
  segments; if layers differ, segments are balanced by bytes. The bytes that a
  layer holds beside its output are not counted.

  Departure from the paper: its algorithm 3 searches the same budgets but makes
  each segment as long as possible, and so cuts at large tensors.

  Args:
    model: functional or sequential, with one input. Freeze variables before:
      `Segment.trainable` and `Segment.non_trainable` are fixed here.

  Returns:
    Two or more segments, in the order of the computation. Each variable is in
    exactly one.

  Raises:
    errors.ConfigError: the model has no graph of layers, more than one input,
      or no cut that saves memory.

  References:
    Chen et al., Training Deep Nets with Sublinear Memory Cost,
    https://arxiv.org/abs/1604.06174.
  """
  if not getattr(model, 'inputs', None) or len(model.inputs) != 1:
    raise _uncuttable(model, 'not a functional model with one input')
  graph = _Graph(model)
  cuts = graph.cuts()
  masks = [graph.all, *(cut.after for cut in cuts), 0]
  pieces = [
    graph.num_bytes(before & ~after)
    for before, after in zip(masks, masks[1:], strict=False)
  ]
  chosen = plan(pieces, [_num_bytes(cut.tensor) for cut in cuts])
  if not chosen:
    raise _uncuttable(
      model, f'where none of {len(cuts)} possible cuts saves memory'
    )
  return graph.segments([cuts[i] for i in chosen])


def plan(pieces: Sequence[int], costs: Sequence[int]) -> tuple[int, ...]:
  """Chooses the cuts with the lowest peak of memory, as `cut_model` describes.

  Args:
    pieces: bytes of the activations between all possible cuts.
    costs: bytes of the tensor at each cut; one entry less than `pieces`.

  Returns:
    Indices of the chosen cuts, ascending; empty if none saves memory.
  """
  total = sum(pieces)
  plans = [
    _choose_cuts(pieces, costs, total / count)
    for count in range(1, len(pieces) + 1)
  ]
  # Among equal peaks `min` takes the first plan, with the fewest cuts.
  return min(plans, key=lambda cuts: peak(pieces, costs, cuts))


def _choose_cuts(
  pieces: Sequence[int], costs: Sequence[int], budget: float
) -> tuple[int, ...]:
  """Finds the cuts of fewest bytes with no segment over `budget` bytes.

  A piece over the budget becomes a separate segment.
  """
  # For the first 0, 1, 2, ... pieces: (bytes of the cuts, the cuts).
  best: list[tuple[int, tuple[int, ...]]] = [(0, ())]
  for end in range(1, len(pieces) + 1):
    size = 0
    choices: list[tuple[int, int, list[int], tuple[int, ...]]] = []
    # Among equals take the latest cuts: a cut is held in memory while all
    # segments after it run.
    for start in reversed(range(end)):
      size += pieces[start]
      if size > budget and choices:
        break
      cut_bytes, cuts = best[start]
      if start:
        cut_bytes, cuts = cut_bytes + costs[start - 1], (*cuts, start - 1)
      choices.append((cut_bytes, len(cuts), [-cut for cut in cuts], cuts))
    cut_bytes, _, _, cuts = min(choices)
    best.append((cut_bytes, cuts))
  return best[-1][1]


def peak(
  pieces: Sequence[int], costs: Sequence[int], cuts: Sequence[int]
) -> int:
  """Computes the peak bytes in memory with these cuts.

  Args:
    pieces: bytes of the activations between all possible cuts.
    costs: bytes of the tensor at each cut.
    cuts: indices of the chosen cuts, ascending.
  """
  bounds = [0, *(cut + 1 for cut in cuts), len(pieces)]
  sizes = [sum(pieces[a:b]) for a, b in zip(bounds, bounds[1:], strict=False)]
  cut_bytes, highest = 0, sizes[0]
  for cut, size in zip(cuts, sizes[1:], strict=True):
    cut_bytes += costs[cut]
    highest = max(highest, cut_bytes + size)
  return highest


def _uncuttable(model: keras.Model, reason: str) -> errors.ConfigError:
  return errors.ConfigError(
    'optimize_gradient_memory: expected a net with cuts, single tensors from '
    f'which all later layers are computed, received {model.name}, {reason}. '
    'Remove --optimize_gradient_memory; --gradient_accumulation_steps saves '
    'memory too.'
  )


class _Cut(NamedTuple):
  """A tensor and the set of nodes that are computed after it, as bits."""

  tensor: keras.KerasTensor
  after: int


class _Graph:
  """The graph of a model. A node is a layer call; a set of nodes is an int."""

  def __init__(self, model: keras.Model) -> None:
    self._model = model
    self._nodes = _nodes_of(model)
    self.all = (1 << len(self._nodes)) - 1
    # Keys are ids of tensors, since == of tensors is elementwise.
    self._consumers: dict[int, list[int]] = {}
    for number, node in enumerate(self._nodes):
      for tensor in node.input_tensors:
        self._consumers.setdefault(id(tensor), []).append(number)
    self._after: dict[int, int] = {}
    for node in reversed(self._nodes):
      for tensor in node.output_tensors:
        self._after[id(tensor)] = self._computed_after(tensor)

  def _computed_after(self, tensor: keras.KerasTensor) -> int:
    """Finds all nodes that depend on a tensor, directly or not."""
    found = 0
    for number in self._consumers.get(id(tensor), ()):
      found |= 1 << number
      for output in self._nodes[number].output_tensors:
        found |= self._after[id(output)]
    return found

  def cuts(self) -> list[_Cut]:
    """Lists all cuts before the first output, in the order of the computation.

    A cut never separates two calls of one layer, or of layers that share a
    variable. Nodes after a cut are also after all earlier cuts.
    """
    last = self._node_of(self._model.outputs[0])
    outputs = {id(tensor) for tensor in self._model.outputs}
    inseparable = self._inseparable()
    found = []
    for node in self._nodes:
      for tensor in () if node.is_input else node.output_tensors:
        after = self._after[id(tensor)]
        if (
          after >> last & 1
          and id(tensor) not in outputs
          and tf.as_dtype(tensor.dtype).is_floating
          and all(mask & after in (0, mask) for mask in inseparable)
          and self._is_cut(tensor, after)
        ):
          found.append(_Cut(tensor, after))
    return sorted(found, key=lambda cut: -cut.after.bit_count())

  def _is_cut(self, tensor: keras.KerasTensor, after: int) -> bool:
    """Checks that nodes `after` read no other tensor from before `tensor`."""
    return not any(
      after >> consumer & 1
      for number, node in enumerate(self._nodes)
      if not after >> number & 1
      for output in node.output_tensors
      if output is not tensor
      for consumer in self._consumers.get(id(output), ())
    )

  def _inseparable(self) -> list[int]:
    """Lists the sets of nodes that no cut may separate."""
    found: dict[int, int] = {}
    for number, node in enumerate(self._nodes):
      variables = getattr(node.operation, 'variables', ())
      for owner in (node.operation, *variables):
        found[id(owner)] = found.get(id(owner), 0) | 1 << number
    return [mask for mask in found.values() if mask.bit_count() > 1]

  def num_bytes(self, mask: int) -> int:
    """Bytes of the nodes' outputs for one example, without the input."""
    return sum(
      _num_bytes(tensor)
      for number, node in enumerate(self._nodes)
      if mask >> number & 1 and not node.is_input
      for tensor in node.output_tensors
    )

  def segments(self, cuts: Sequence[_Cut]) -> list[Segment]:
    """Makes the segments between the chosen cuts."""
    starts = [self._model.inputs[0], *(cut.tensor for cut in cuts)]
    masks = [self.all, *(cut.after for cut in cuts), 0]
    return [
      self._segment(start, [] if end is None else [end], before & ~after)
      for start, end, before, after in zip(
        starts, [*starts[1:], None], masks, masks[1:], strict=False
      )
    ]

  def _segment(
    self,
    start: keras.KerasTensor,
    ends: Sequence[keras.KerasTensor],
    mask: int,
  ) -> Segment:
    outputs = [
      index
      for index, tensor in enumerate(self._model.outputs)
      if mask >> self._node_of(tensor) & 1
    ]
    model = keras.Model(
      start, [*ends, *(self._model.outputs[i] for i in outputs)]
    )
    return Segment(
      model=model,
      trainable=_indices(
        model.trainable_variables, self._model.trainable_variables
      ),
      non_trainable=_indices(
        model.non_trainable_variables, self._model.non_trainable_variables
      ),
      outputs=tuple(outputs),
      num_bytes=self.num_bytes(mask),
    )

  def _node_of(self, tensor: keras.KerasTensor) -> int:
    node = _source_node(tensor)
    return next(i for i, each in enumerate(self._nodes) if each is node)


def _nodes_of(model: keras.Model) -> list[_Node]:
  """Lists the nodes of a model's outputs in topological order."""
  order: list[_Node] = []
  seen: set[int] = set()
  stack = [(_source_node(tensor), False) for tensor in reversed(model.outputs)]
  while stack:
    node, ready = stack.pop()
    if ready:
      order.append(node)
    elif id(node) not in seen:
      seen.add(id(node))
      stack.append((node, True))
      stack += [(_source_node(tensor), False) for tensor in node.input_tensors]
  return order


def _source_node(tensor: keras.KerasTensor) -> _Node:
  """Finds the node that made a tensor; Keras has no public API for this."""
  operation, node_index, _ = tensor._keras_history
  return operation._inbound_nodes[node_index]


def _indices(
  part: Sequence[keras.Variable], whole: Sequence[keras.Variable]
) -> tuple[int, ...]:
  positions = {id(variable): index for index, variable in enumerate(whole)}
  return tuple(positions[id(variable)] for variable in part)


def _num_bytes(tensor: keras.KerasTensor) -> int:
  """Bytes of a tensor for one example, or one token if lengths vary."""
  elements = math.prod(size or 1 for size in tensor.shape[1:])
  return elements * tf.as_dtype(tensor.dtype).size
