"""The promises that every method keeps, for this one."""

from bench.conformance import MethodConformance


class TestLead(MethodConformance):
    """Every method's promises; see bench/conformance.py."""

    method = "lead"
