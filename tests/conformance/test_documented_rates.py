"""Check that specs state the success rates of unskilled players; `check_env` spot-checks the rates by playing."""

from __future__ import annotations

import pytest

import palestra
from palestra.spec import MAX_UNEARNED, RATES_REASONS

READY = [env_id for env_id in palestra.list_envs() if not palestra.get_spec(env_id).needs_data]


@pytest.mark.parametrize("family", sorted({env_id.partition(":")[0] for env_id in READY}))
def test_high_rates_have_a_reason(family: str) -> None:
    for env_id in READY:
        spec = palestra.get_spec(env_id)
        if spec.parts.family == family:
            rates = [spec.random_success, spec.echo_success, spec.constant_success]
            assert None not in rates, env_id
            high = max(rate for rate in rates if rate is not None) > MAX_UNEARNED
            assert spec.rates_reason in (RATES_REASONS if high else ("", *RATES_REASONS)), env_id
