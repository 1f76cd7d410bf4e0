"""MuLoCo: Muon inside, error feedback in 2 bits, Nesterov's momentum outside.

Thérien et al., MuLoCo: Muon is a Practical Inner Optimizer for DiLoCo, 2025,
https://arxiv.org/abs/2505.23725. Each worker takes 30 steps of Muon; e <- e +
Delta; it sends Q(e), four levels of each variable, and subtracts that from e;
u <- 0.6 u + mean; theta <- theta - 0.7 (mean + 0.6 u).

Not certain, because only reports of the paper were read: outer momentum 0.6 and
rate 0.7, which are its values for one worker; the whole residual (no decay);
and the inner rate. The paper's inner rates, 0.016 to 0.063, are for updates of
another scale. Here an update has a root mean square of 0.2 times the rate, so
0.003 is as 0.02 in a matrix of 1024 rows and columns. In the authors' public
code (https://github.com/facebookresearch/MuLoCo) the example with 2 bits has 30
local steps, outer momentum 0.9, outer rate 0.8 and a residual decay of 0.9.

Departures: those of `step.muon` and `codec.methods.four_levels`; the public
code's Muon has a momentum of 0.9 without Nesterov's step. Experiments there
send embeddings and vectors of normalizations as float32; here all variables are
coded, unless the codec says otherwise. In trainers AdamW updates vectors,
embeddings and the last layer, as in the paper, with the same learning rate,
whereas the paper tunes another one.
"""

from terngrad.recipes import recipe

RECIPE = recipe.Recipe(
  name='muloco',
  source='Thérien et al., 2025, https://arxiv.org/abs/2505.23725',
  every=30,
  codec='error_feedback+statistical',
  outer='nesterov:momentum=0.6',
  outer_learning_rate=0.7,
  inner='muon',
  inner_learning_rate=0.003,
  uncertain=('codec', 'outer', 'outer_learning_rate', 'inner_learning_rate'),
)
