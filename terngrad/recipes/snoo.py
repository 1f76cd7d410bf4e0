"""SNOO: one worker, and Nesterov's momentum on the change of K steps.

Kallusky et al., SNOO: Step-K Nesterov Outer Optimizer, 2025,
https://arxiv.org/abs/2510.15830. After K steps of AdamW, s = w - w_K; b <- mu b
+ s; w <- w - eta (mu b + s). Nothing is sent. K = 100, mu = 0.75 and eta = 0.8
are the paper's best values for 125 million parameters, according to two reports
of it; K from 5 to 100 is said to do about as well.

Not certain: the inner learning rate, which is that of DiLoCo.
"""

from terngrad.recipes import recipe

RECIPE = recipe.Recipe(
  name='snoo',
  source='Kallusky et al., 2025, https://arxiv.org/abs/2510.15830',
  every=100,
  codec='identity',
  outer='nesterov:momentum=0.75',
  outer_learning_rate=0.8,
  inner='adamw',
  inner_learning_rate=4e-4,
  uncertain=('every', 'outer', 'outer_learning_rate', 'inner_learning_rate'),
  most_workers=1,
)
