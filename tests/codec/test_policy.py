"""Which variable gets which codec."""

import pytest

from terngrad.codec import policy

SPECS = (
  policy.VariableSpec('conv1/kernel', (5, 5, 1, 32)),
  policy.VariableSpec('conv1/bias', (32,)),
  policy.VariableSpec('logits/kernel', (512, 10), is_logits=True),
  policy.VariableSpec('logits/bias', (10,), is_logits=True),
  policy.VariableSpec('step', ()),
)


@pytest.mark.parametrize(
  ('rules', 'expected'),
  [
    ([(policy.always, 'a')], 'aaaaa'),
    ([(policy.is_logits, 'l'), (policy.always, 'a')], 'aalla'),
    ([(policy.smaller_than(33), 's'), (policy.always, 'a')], 'asass'),
    ([(policy.smaller_than(32), 's'), (policy.always, 'a')], 'aaass'),
    (
      [
        (policy.smaller_than(33), 's'),
        (policy.is_logits, 'l'),
        (policy.always, 'a'),
      ],
      'aslss',
    ),
    (
      [
        (policy.is_logits, 'l'),
        (policy.smaller_than(33), 's'),
        (policy.always, 'a'),
      ],
      'aslls',
    ),
    ([(policy.always, 'a'), (policy.is_logits, 'l')], 'aaaaa'),
    ([(lambda spec: spec.name == 'step', 'x'), (policy.always, 'a')], 'aaaax'),
  ],
)
def test_first_matching_rule_applies(rules, expected):
  assert policy.policy(rules, SPECS) == tuple(expected)


def test_no_variables_no_codecs():
  assert policy.policy([], ()) == ()


@pytest.mark.parametrize('rules', [[], [(policy.is_logits, 'l')]])
def test_variable_without_rule_is_an_error_that_names_it(rules):
  with pytest.raises(
    ValueError,
    match=r'none for conv1/kernel of shape \(5, 5, 1, 32\)\. End the rules '
    r'with \(always, codec\)',
  ):
    policy.policy(rules, SPECS)


@pytest.mark.parametrize(
  ('shape', 'size'), [((), 1), ((0,), 0), ((7,), 7), ((2, 3, 5), 30)]
)
def test_number_of_elements_is_the_product_of_the_shape(shape, size):
  assert policy.VariableSpec('v', shape).num_elements == size


@pytest.mark.parametrize(
  ('text', 'expected'),
  [
    ('*->a', 'aaaaa'),
    ('rank<2->v;*->a', 'avavv'),
    ('logits/* & rank=2 -> l ; size>=32 -> b; * -> c', 'bblcc'),
    ('size<=10 -> s; conv?/* -> c; * -> x', 'ccxss'),
    ('size>320 & size<6000 -> m;*->a', 'mamaa'),
    (' ; *->a;', 'aaaaa'),
  ],
)
def test_parsed_rules_apply_in_order(text, expected):
  codes = policy.policy(policy.parse(text), SPECS)
  assert ''.join(codes) == expected


@pytest.mark.parametrize(
  ('text', 'message'),
  [
    ('rank<2', r"expected 'WHERE -> CODE', .* received 'rank<2'"),
    ('-> fp16', "received '-> fp16'"),
    ('rank<2 ->', "received 'rank<2 ->'"),
    ('a & -> fp16', 'such as'),
    ('rank<two -> fp16', "compared with a whole number, received 'rank<two'"),
    ('elements>3 -> fp16', "received 'elements>3'. Write size>=1000"),
  ],
)
def test_invalid_rule_is_an_error_with_an_example(text, message):
  with pytest.raises(ValueError, match=message):
    policy.parse(text)


def test_empty_text_has_no_rules():
  assert policy.parse('') == []


@pytest.mark.parametrize(
  ('text', 'expected'),
  [
    ('', []),
    ('1->a', [(1, 'a')]),
    (' 5 -> a:b=1 ; 20 -> c;', [(5, 'a:b=1'), (20, 'c')]),
  ],
)
def test_stages_are_parsed(text, expected):
  assert policy.parse_stages(text) == expected


@pytest.mark.parametrize(
  ('text', 'message'),
  [
    ('0 -> a', "above 0, such as '100 -> identity', received '0 -> a'"),
    ('5 -> a; 5 -> b', "above 5, such as '105 -> identity'"),
    ('a -> b', "received 'a -> b'"),
    ('5', "received '5'"),
    ('5 ->', "received '5 ->'"),
    ('-5 -> a', "received '-5 -> a'"),
  ],
)
def test_invalid_stage_is_an_error_with_an_example(text, message):
  with pytest.raises(ValueError, match=message):
    policy.parse_stages(text)
