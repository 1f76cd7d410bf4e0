"""Recomputes activations in the backward pass to save memory.

The forward pass stores only the tensors between a model's segments, see
`segments`. The backward pass runs each segment again from the stored tensor
and then differentiates it; the last segment runs only once.

Gradients, losses and statistics are bit-identical to those of a single tape
over the model: dropout draws from the same seeds, batch normalization sees the
same examples, and the moving statistics of the second run are discarded.

References:
  Chen et al., Training Deep Nets with Sublinear Memory Cost,
  https://arxiv.org/abs/1604.06174. Caffe2's memonger.
"""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any
from typing import TypeVar

import keras
import tensorflow as tf

from terngrad.passes import segments
from terngrad.step import model_variables
from terngrad.step import passes

_T = TypeVar('_T')


class RecomputedPass(passes.ModelPass):
  """The pass of a Keras classifier with recomputed activations."""

  def __init__(
    self,
    model: keras.Model,
    plan: model_variables.ModelVariables,
    loss: passes.LossFunction = passes.PLAIN,
    decoupled: bool = False,
    mean_share: tf.Variable | float | None = None,
  ) -> None:
    """Cuts the model into segments; `passes.ModelPass` has the arguments.

    Raises:
      errors.ConfigError: the model cannot be cut, see `segments.cut_model`.
    """
    super().__init__(model, plan, loss, decoupled, mean_share)
    self._segments = segments.cut_model(model)

  def differentiate(
    self,
    parameters: list[tf.Tensor],
    state: list[tf.Tensor],
    images: tf.Tensor,
    losses: Callable[
      [passes.Outputs, list[tf.Tensor]], tuple[tf.Tensor, tf.Tensor]
    ],
  ) -> tuple[list[tf.Tensor], tf.Tensor, list[tf.Tensor]]:
    """Differentiates segment by segment; see `ModelPass.differentiate`."""
    chain = self._segments
    *first, last = chain
    cuts, state_after = [images], list(state)
    heads: dict[int, tf.Tensor] = {}
    for segment in first:
      (cut, *outputs), new_state = segment(parameters, state, cuts[-1])
      cuts.append(cut)
      heads.update(zip(segment.outputs, outputs, strict=True))
      _put(state_after, segment.non_trainable, new_state)
    # The segments before `begin` have no trainable parameters.
    begin = next(i for i, segment in enumerate(chain) if segment.trainable)
    with tf.GradientTape(watch_accessed_variables=False) as tape:
      variables = [parameters[i] for i in last.trainable]
      tape.watch([*variables, cuts[-1], *heads.values()])
      computed, new_state = last(parameters, state, cuts[-1])
      known = {**heads, **dict(zip(last.outputs, computed, strict=True))}
      ordered = [known[index] for index in sorted(known)]
      # Segments refuse layers that add losses.
      target, scores = losses(ordered if len(ordered) > 1 else ordered[0], [])
    _put(state_after, last.non_trainable, new_state)
    sources = [variables, cuts[-1] if begin < len(first) else [], heads]
    gradients, upstream, head_gradients = _gradient(tape, target, sources)
    results: list[tf.Tensor] = [None] * len(parameters)
    _put(results, last.trainable, gradients)
    for index in reversed(range(begin, len(first))):
      segment = first[index]
      outer = [upstream, *(head_gradients[i] for i in segment.outputs)]
      gradients, upstream = _recompute(
        segment, parameters, state, cuts[index], outer, gradients, index > begin
      )
      _put(results, segment.trainable, gradients)
    return results, scores, state_after


def _recompute(
  segment: segments.Segment,
  parameters: Sequence[tf.Tensor],
  state: Sequence[tf.Tensor],
  cut: tf.Tensor,
  output_gradients: Sequence[tf.Tensor],
  earlier_gradients: Sequence[tf.Tensor],
  needs_cut: bool,
) -> tuple[list[tf.Tensor], tf.Tensor | list[tf.Tensor]]:
  """Runs a segment again and differentiates it.

  Args:
    segment: of the model.
    parameters: values of the model's `trainable_variables`.
    state: values of its `non_trainable_variables` in the forward pass.
    cut: the input of the segment, from the forward pass.
    output_gradients: gradients by the outputs of the segment.
    earlier_gradients: gradients that must be computed before the segment runs.
    needs_cut: False skips the gradient by `cut`.

  Returns:
    (gradients by the segment's parameters, gradient by `cut` or []).
  """
  # Without these dependencies TensorFlow would merge this run with the equal
  # operations of the forward pass and hold their results, or run it while the
  # activations of other segments are still in memory.
  with tf.control_dependencies([*output_gradients, *earlier_gradients]):
    cut = tf.identity(cut)
  variables = [parameters[i] for i in segment.trainable]
  with tf.GradientTape(watch_accessed_variables=False) as tape:
    tape.watch([*variables, cut] if needs_cut else variables)
    results, _ = segment(parameters, state, cut)
  sources = [variables, cut if needs_cut else []]
  return _gradient(tape, results, sources, output_gradients)


def _gradient(
  tape: tf.GradientTape,
  target: tf.Tensor | Sequence[tf.Tensor],
  sources: Sequence[Any],
  output_gradients: Sequence[tf.Tensor] | None = None,
) -> Any:
  # Returns the structure of `sources`. The gradient of a parameter that does
  # not affect the loss is zero.
  return tape.gradient(
    target,
    sources,
    output_gradients,
    unconnected_gradients=tf.UnconnectedGradients.ZERO,
  )


def _put(values: list[_T], indices: Sequence[int], new: Sequence[_T]) -> None:
  for index, value in zip(indices, new, strict=True):
    values[index] = value
