"""Collects all cases of unmodified programs."""

from programs.cases_jobs import job_cases
from programs.cases_load import load_cases
from programs.cases_ucx import ucx_cases
from programs.cases_verbs import device_cases, perftest_cases, pingpong_cases


def all_cases():
    cases = (device_cases() + pingpong_cases() + perftest_cases() + ucx_cases() + job_cases() +
             load_cases())
    names = [case.name for case in cases]
    assert len(set(names)) == len(names), "a name is there twice"
    return cases
