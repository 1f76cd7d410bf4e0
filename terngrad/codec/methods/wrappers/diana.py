"""DIANA: coded differences from vectors that learn the workers' gradients.

Mishchenko, Gorbunov, Takac and Richtarik, Distributed Learning with Compressed
Gradient Differences, 2019, https://arxiv.org/abs/1901.09269, algorithm 1: the
workers send Q(grad_i - h_i); the estimate of the gradient is h plus the mean of
these, and h_i and h learn with the rate alpha. At the optimum of the loss the
gradients of workers are not zero, but h_i is equal to them, so that the coding
error vanishes. Q is unbiased with E |Q(x) - x|^2 <= omega |x|^2, and
alpha is at most 1 / (1 + omega). Horvath et al., Stochastic Distributed
Learning with Gradient Quantization and Variance Reduction, 2019,
https://arxiv.org/abs/1904.05115, for any such Q.

Departures: h_i starts with zeros; the momentum is the optimizer's; and if no
alpha is given, each variable has the largest that its omega allows.
"""

from collections.abc import Sequence

from terngrad.codec import method as methods
from terngrad.codec.methods.wrappers import differences


class Diana(differences.CodedDifferences):
  """Decodes an unbiased mean whose error shrinks as the vectors learn."""

  def __init__(self, method: methods.Method, alpha: float = 0.0) -> None:
    """Wraps a method.

    Args:
      method: an unbiased method with a known omega, one round and no state.
      alpha: rate of the vectors, at most 1 / (1 + omega); 0 chooses one for
        each variable.

    Raises:
      ValueError: the method is of another kind, or alpha is negative. If alpha
        is too large, `states` raises it, which knows the variables.
    """
    if not method.traits.unbiased or method.omega(1) is None:
      raise ValueError(
        'diana: expected an unbiased codec whose variance has a bound, '
        f'received {method.name}. Use qsgd, natural, minmax, '
        'asymmetric:clip_factor=0 or randomk:unbiased=1, or ef21+ for others.'
      )
    if not 0 <= alpha <= 1:
      raise ValueError(
        f'diana: expected alpha from 0 to 1, received {alpha}. Leave it out '
        'to choose the largest allowed one.'
      )
    text = f'({alpha:g})' if alpha else ''
    super().__init__(f'diana{text}', method)
    self.alpha = alpha

  def wrap(self, method: methods.Method) -> methods.Method:
    """Wraps another method with the same alpha."""
    return Diana(method, self.alpha)

  def states(self, shapes: methods.Shapes) -> tuple[methods.State, ...]:
    """Declares the vectors.

    Raises:
      ValueError: alpha is too large for a variable.
    """
    self.rates(methods.sizes_of(shapes))
    return super().states(shapes)

  def rates(self, sizes: Sequence[int]) -> list[float]:
    """Returns alpha of each variable."""
    return list(map(self._rate, sizes))

  def _rate(self, size: int) -> float:
    limit = 1 / (1 + (self.method.omega(max(1, size)) or 0.0))
    if self.alpha > limit:
      raise ValueError(
        f'diana: expected alpha of at most {limit:.4g}, which is 1 / (1 + '
        f'omega) of {self.method.name} for a variable of {size} elements, '
        f'received {self.alpha:g}. Leave alpha out, or use smaller groups or '
        'more levels.'
      )
    return self.alpha or limit
