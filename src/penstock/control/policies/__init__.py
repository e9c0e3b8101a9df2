"""Policies, one per file; `policy_of` finds the one that a user's rules name."""

from __future__ import annotations

from penstock.control.decision import Policy
from penstock.control.elastic import Elastic
from penstock.control.policies.fixed import Fixed
from penstock.control.policies.streamcloud import StreamCloud


def policy_of(rules: Elastic) -> Policy:
    """Return the policy that some rules name.

    >>> policy_of(Elastic()).name, policy_of(Elastic(policy="fixed")).name
    ('streamcloud', 'fixed')
    """
    return StreamCloud(rules) if rules.policy == StreamCloud.name else Fixed()
