"""Lets pytest explain the assertions of the shared conformance classes."""

import pytest

pytest.register_assert_rewrite('tests.codec.bounds', 'tests.codec.conformance')
