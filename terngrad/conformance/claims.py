"""All claims, and the check of a method against them.

A claim is a function of a `subject.MethodUnderTest`. It returns if the method
keeps it, and raises `failures.ClaimFailed` or `failures.NotApplicable`
otherwise.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from typing import NamedTuple

from terngrad.conformance import accuracy
from terngrad.conformance import failures
from terngrad.conformance import states
from terngrad.conformance import subject as subjects
from terngrad.conformance import sums
from terngrad.conformance import values
from terngrad.conformance import variants
from terngrad.conformance import words

Claim = Callable[[subjects.MethodUnderTest], None]
CLAIMS: tuple[Claim, ...] = (
  words.declarations_are_plain_values,
  words.payload_has_the_declared_number_of_words,
  words.probe_shows_elements_that_are_not_finite,
  words.workers_draw_differently_if_and_only_if_private,
  words.any_words_decode_to_the_declared_shapes,
  values.means_have_the_shapes_of_the_gradients,
  values.zeros_give_zeros,
  values.huge_and_subnormal_gradients_stay_finite_and_small,
  values.scale_is_preserved,
  values.lossless_trait_matches_exact_means,
  accuracy.biased_methods_are_contractive,
  accuracy.mean_over_draws_is_the_gradient_if_unbiased,
  accuracy.mean_of_workers_is_the_mean_of_their_estimates,
  sums.codes_are_within_the_declared_levels,
  sums.sums_decode_to_the_bits_of_all_words,
  states.states_stay_finite_and_have_one_owner,
  states.states_stay_small_if_the_gradient_stays,
  variants.mean_of_one_worker_is_its_estimate,
  variants.any_device_decodes_the_same_means_from_words,
  variants.parts_of_a_model_give_the_bits_of_the_whole,
  variants.kernels_give_the_bits_of_the_method,
  variants.compiled_code_gives_the_bits_of_eager_code,
)
# Values of `ClaimOutcome.state`.
OK, FAILED, NOT_APPLICABLE = 'ok', 'failed', 'does not apply'


class ClaimOutcome(NamedTuple):
  """The result of one claim.

  Attributes:
    name: the claim, in words.
    state: OK, FAILED or NOT_APPLICABLE.
    message: expected, received and remedy; or why the claim does not apply.
  """

  name: str
  state: str
  message: str = ''


def name_of(claim: Claim) -> str:
  """Returns a claim in words: 'zeros give zeros'."""
  return claim.__name__.replace('_', ' ')


def check(
  subject: subjects.MethodUnderTest, claims: Iterable[Claim] = CLAIMS
) -> Iterator[ClaimOutcome]:
  """Yields the outcome of each claim about a method, as soon as it is known.

  An exception of the method is a failure of the claim.
  """
  for claim in claims:
    try:
      claim(subject)
    except failures.ClaimFailed as failure:
      yield ClaimOutcome(name_of(claim), FAILED, str(failure))
    except failures.NotApplicable as reason:
      yield ClaimOutcome(name_of(claim), NOT_APPLICABLE, str(reason))
    except Exception as error:
      yield ClaimOutcome(name_of(claim), FAILED, failures.describe(error))
    else:
      yield ClaimOutcome(name_of(claim), OK)
