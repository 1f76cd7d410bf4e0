"""What a wrapper remembers of each variable, before what is within remembers.

A wrapper's own states come first, one of each variable; the wrapped method gets
the rest.
"""

from terngrad.codec import method as methods


def states(name, inner, shapes):
  """Tuple of `method.State`: one a variable and worker, then `inner`'s.

  Args:
    name: of the wrapper's states.
    inner: `method.Method` within.
    shapes: of the variables.
  """
  own = tuple(
    methods.State(name, methods.WORKER, index, tuple(shape))
    for index, shape in enumerate(shapes)
  )
  return (*own, *inner.states(shapes))


def split(states, context):
  """(the wrapper's own states, those of the method within)."""
  count = len(context.shapes)
  return states[:count], states[count:]


def send(inner_send, gradients, states, received, context):
  """`Method.send` of a round that the wrapper has nothing to do with."""
  own, inner = split(states, context)
  words, inner = inner_send(gradients, inner, received, context)
  return words, [*own, *inner]


def decode(method, received, states, context):
  """`Method.decode` where the wrapper has nothing to do with it."""
  own, inner = split(states, context)
  means, inner = method.decode(received, inner, context)
  return means, [*own, *inner]
