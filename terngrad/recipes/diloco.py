"""DiLoCo: AdamW inside, Nesterov's momentum outside, float32.

Douillard et al., DiLoCo: Distributed Low-Communication Training of Language
Models, 2023, https://arxiv.org/abs/2311.08105, algorithm 1. Each worker takes
500 steps of AdamW; Delta is the mean of theta - theta_i over the workers; v <-
0.9 v + Delta; theta <- theta - 0.7 (Delta + 0.9 v). The moments of AdamW stay
on the worker.

Departure: the learning rate does not warm up and is not a cosine, and the
weight decay is that of the run, unless the options say so.
"""

from terngrad.recipes import recipe

RECIPE = recipe.Recipe(
  name='diloco',
  source='Douillard et al., 2023, https://arxiv.org/abs/2311.08105',
  every=500,
  codec='identity',
  outer='nesterov:momentum=0.9',
  outer_learning_rate=0.7,
  inner='adamw',
  inner_learning_rate=4e-4,
)
