"""SparseLoCo: error feedback and few elements in 2 bits, no outer momentum.

Sarfi et al., Communication Efficient LLM Pre-training with SparseLoCo, 2025,
https://arxiv.org/abs/2508.15706, algorithm 1. Each worker takes H steps of
AdamW; e <- beta e + Delta; it sends Q(TopK(e)) of each chunk and subtracts that
from e; theta <- theta - alpha mean. H = 30, beta = 0.95 and 64 of 4096 elements
are those of Covenant-72B, Lidin et al., 2026, https://arxiv.org/abs/2603.08163;
the first paper compares several H and densities.

Not certain: alpha = 1, and the learning rate, which is that of DiLoCo.
Departures: those of the code, `codec.methods.sparse.sparseloco`. Variables of
one axis are coded as matrices are.
"""

from terngrad.recipes import recipe

RECIPE = recipe.Recipe(
  name='sparseloco',
  source='Sarfi et al., 2025, https://arxiv.org/abs/2508.15706',
  every=30,
  codec='error_feedback:decay=0.95+sparseloco:chunk=4096,kept=64',
  outer='gd',
  outer_learning_rate=1.0,
  inner='adamw',
  inner_learning_rate=4e-4,
  uncertain=('every', 'codec', 'outer_learning_rate', 'inner_learning_rate'),
)
