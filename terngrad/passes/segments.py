"""Cuts a functional Keras model into segments that one tensor joins.

A cut is a tensor through which everything passes: all that is computed after
it is computed from it and from nothing else before it. Residual units, the
blocks of Inception and the layers of VGG end in one.
"""

from collections.abc import Sequence
from typing import Any
from typing import NamedTuple
from typing import TypeAlias

import keras
import tensorflow as tf

from terngrad import errors

# A call of a layer. Keras has no public name for it.
_Node: TypeAlias = Any


class Segment(NamedTuple):
  """A part of a model, from one cut to the next.

  Attributes:
    model: shares the layers of the whole, from the cut
      before to a list of the next cut, of all segments but the last, and of
      `outputs`.
    trainable: indices of its parameters in the whole's
      `trainable_variables`.
    others: indices of its values in the whole's `non_trainable_variables`.
    outputs: which outputs of the whole are computed here.
    num_bytes: of what its layers return, for one example.
  """

  model: keras.Model
  trainable: tuple[int, ...]
  others: tuple[int, ...]
  outputs: tuple[int, ...]
  num_bytes: int

  def __call__(
    self,
    parameters: Sequence[tf.Tensor],
    state: Sequence[tf.Tensor],
    given: tf.Tensor,
  ) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    """Runs the segment in training.

    Args:
      parameters: the values of the whole's `trainable_variables`.
      state: those of its `non_trainable_variables`.
      given: the cut before, [b, ...].

    Returns:
      (list of the tensors that `model` returns, list of the new values of
      `others`).
    """
    results, moved = self.model.stateless_call(
      [parameters[i] for i in self.trainable],
      [state[i] for i in self.others],
      given,
      training=True,
    )
    return results if isinstance(results, list) else [results], moved


def of(model: keras.Model) -> list[Segment]:
  """Cuts a model so that recomputing it segment by segment takes least memory.

  While a segment is differentiated, its own activations are held and the cuts
  up to it. For budgets of 1/1, 1/2, 1/3, ... of the bytes of all activations,
  no segment is larger than the budget where the cuts allow it, and the cuts
  hold the fewest bytes; of these plans that with the lowest peak is kept. A net
  of n equal layers is cut into some sqrt(n) segments; where layers differ,
  segments are balanced by their bytes. What a layer holds beside its output is
  not counted.

  Departure from the paper: its algorithm 3, with the same search over budgets,
  makes each segment as long as it can be, and so cuts at large tensors.

  Args:
    model: functional or sequential, of one input; its variables
      are trainable or not as they are going to be.

  Returns:
    Two or more, in the order of the computation. Each
    variable is in exactly one.

  Raises:
    errors.ConfigError: the model has no graph of layers, more than one input,
      or no place to cut that saves memory.

  References:
    Chen et al., Training Deep Nets with Sublinear Memory Cost,
    https://arxiv.org/abs/1604.06174.
  """
  if not getattr(model, 'inputs', None) or len(model.inputs) != 1:
    raise _uncuttable(model, 'which is no graph of layers with one input')
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
      model, f'where none of {len(cuts)} single tensors is a cut that saves any'
    )
  return graph.segments([cuts[i] for i in chosen])


def plan(pieces: Sequence[int], costs: Sequence[int]) -> tuple[int, ...]:
  """Chooses cuts; see `of`.

  Args:
    pieces: bytes of the activations between all possible cuts.
    costs: one shorter: bytes of the tensor at each cut.

  Returns:
    The chosen cuts, ascending; empty where none saves memory.
  """
  total = sum(pieces)
  plans = [
    _within(pieces, costs, total / count) for count in range(1, len(pieces) + 1)
  ]
  # The first of equals: fewer cuts.
  return min(plans, key=lambda cuts: peak(pieces, costs, cuts))


def _within(
  pieces: Sequence[int], costs: Sequence[int], budget: float
) -> tuple[int, ...]:
  """The cuts of fewest bytes whose segments are within a budget.

  A piece beyond it is a segment by itself.
  """
  # For the first 0, 1, 2, ... pieces: (bytes of the cuts, the cuts).
  best: list[tuple[int, tuple[int, ...]]] = [(0, ())]
  for end in range(1, len(pieces) + 1):
    size = 0
    found: list[tuple[int, int, list[int], tuple[int, ...]]] = []
    # Of equals the latest cuts: a cut is held while all after it are.
    for start in reversed(range(end)):
      size += pieces[start]
      if size > budget and found:
        break
      held, cuts = best[start]
      if start:
        held, cuts = held + costs[start - 1], (*cuts, start - 1)
      found.append((held, len(cuts), [-cut for cut in cuts], cuts))
    held, _, _, cuts = min(found)
    best.append((held, cuts))
  return best[-1][1]


def peak(
  pieces: Sequence[int], costs: Sequence[int], cuts: Sequence[int]
) -> int:
  """The most bytes held at once, with these of all possible cuts."""
  bounds = [0, *(cut + 1 for cut in cuts), len(pieces)]
  sizes = [sum(pieces[a:b]) for a, b in zip(bounds, bounds[1:], strict=False)]
  held, most = 0, sizes[0]
  for cut, size in zip(cuts, sizes[1:], strict=True):
    held += costs[cut]
    most = max(most, held + size)
  return most


def _uncuttable(model: keras.Model, reason: str) -> errors.ConfigError:
  return errors.ConfigError(
    'optimize_gradient_memory: expected a net that can be cut where one tensor '
    f'is all that goes on, received {model.name}, {reason}. Leave '
    '--optimize_gradient_memory out; --gradient_accumulation_steps takes less '
    'memory too.'
  )


class _Cut(NamedTuple):
  """A tensor, and the nodes that are computed after it, as bits."""

  tensor: keras.KerasTensor
  after: int


class _Graph:
  """The nodes of a model, calls of layers; sets of them are bits of an int."""

  def __init__(self, model: keras.Model) -> None:
    self._model = model
    self._nodes = _nodes_of(model)
    self.all = (1 << len(self._nodes)) - 1
    # By the tensors' ids: equality is elementwise.
    self._consumers: dict[int, list[int]] = {}
    for number, node in enumerate(self._nodes):
      for tensor in node.input_tensors:
        self._consumers.setdefault(id(tensor), []).append(number)
    self._after: dict[int, int] = {}
    for node in reversed(self._nodes):
      for tensor in node.output_tensors:
        self._after[id(tensor)] = self._computed_after(tensor)

  def _computed_after(self, tensor: keras.KerasTensor) -> int:
    """All nodes that need a tensor, at once or by others."""
    found = 0
    for number in self._consumers.get(id(tensor), ()):
      found |= 1 << number
      for output in self._nodes[number].output_tensors:
        found |= self._after[id(output)]
    return found

  def cuts(self) -> list[_Cut]:
    """All cuts on the way to the first output, from the input on.

    The calls of one layer, and of layers that share a variable, are on one
    side of a cut. What is after a cut is after all cuts before it.
    """
    last = self._node_of(self._model.outputs[0])
    outputs = {id(tensor) for tensor in self._model.outputs}
    together = self._together()
    found = []
    for node in self._nodes:
      for tensor in () if node.is_input else node.output_tensors:
        after = self._after[id(tensor)]
        if (
          after >> last & 1
          and id(tensor) not in outputs
          and tf.as_dtype(tensor.dtype).is_floating
          and all(mask & after in (0, mask) for mask in together)
          and self._all_passes(tensor, after)
        ):
          found.append(_Cut(tensor, after))
    return sorted(found, key=lambda cut: -cut.after.bit_count())

  def _all_passes(self, tensor: keras.KerasTensor, after: int) -> bool:
    """Whether no other tensor goes on from before it to what is after."""
    return not any(
      after >> consumer & 1
      for number, node in enumerate(self._nodes)
      if not after >> number & 1
      for output in node.output_tensors
      if output is not tensor
      for consumer in self._consumers.get(id(output), ())
    )

  def _together(self) -> list[int]:
    """Sets of nodes that no cut may part."""
    found: dict[int, int] = {}
    for number, node in enumerate(self._nodes):
      variables = getattr(node.operation, 'variables', ())
      for owner in (node.operation, *variables):
        found[id(owner)] = found.get(id(owner), 0) | 1 << number
    return [mask for mask in found.values() if mask.bit_count() > 1]

  def num_bytes(self, mask: int) -> int:
    """Of what nodes return, but the images, for one example."""
    return sum(
      _num_bytes(tensor)
      for number, node in enumerate(self._nodes)
      if mask >> number & 1 and not node.is_input
      for tensor in node.output_tensors
    )

  def segments(self, cuts: Sequence[_Cut]) -> list[Segment]:
    """Those between chosen cuts."""
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
      others=_indices(
        model.non_trainable_variables, self._model.non_trainable_variables
      ),
      outputs=tuple(outputs),
      num_bytes=self.num_bytes(mask),
    )

  def _node_of(self, tensor: keras.KerasTensor) -> int:
    node = _maker(tensor)
    return next(i for i, each in enumerate(self._nodes) if each is node)


def _nodes_of(model: keras.Model) -> list[_Node]:
  """The nodes that a model's outputs need, each after those it needs."""
  order: list[_Node] = []
  seen: set[int] = set()
  waiting = [(_maker(tensor), False) for tensor in reversed(model.outputs)]
  while waiting:
    node, ready = waiting.pop()
    if ready:
      order.append(node)
    elif id(node) not in seen:
      seen.add(id(node))
      waiting.append((node, True))
      waiting += [(_maker(tensor), False) for tensor in node.input_tensors]
  return order


def _maker(tensor: keras.KerasTensor) -> _Node:
  """The node that made a tensor. Keras has no public name for its graph."""
  operation, node_index, _ = tensor._keras_history
  return operation._inbound_nodes[node_index]


def _indices(
  own: Sequence[keras.Variable], whole: Sequence[keras.Variable]
) -> tuple[int, ...]:
  places = {id(variable): index for index, variable in enumerate(whole)}
  return tuple(places[id(variable)] for variable in own)


def _num_bytes(tensor: keras.KerasTensor) -> int:
  """For one example."""
  elements = tf.TensorShape(tensor.shape[1:]).num_elements()
  return elements * tf.as_dtype(tensor.dtype).size
