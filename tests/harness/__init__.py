"""What the tests with real programs share: emulated hosts, programs on them, and what the programs wrote.

A folder of scripts that needs this package holds a symbolic link to it. Python looks for modules beside the
script that it runs, so every script runs by its path, from any folder, without settings. Importing the package
makes `tests` the root of all other imports: `from programs.cases_verbs import perftest`.

build    where the programs under test are      fabric   emulated hosts, their NICs and the NICs' faults
program  one running program and its output     checker  the two ends of a traffic program of SHIFT
events   the layer's event records              faults   which faults there are, and what ends them
waiting  waits until a condition holds          ports    free TCP ports, and ports with a listener
standstill  when the whole machine stood still
runs     a run, or many side by side            options  command lines          report   result files
case     what an unmodified program must do     session  one run of a case
devices  network devices of emulated NICs       suite    rdma-core's own tests
"""

import os
import sys

TESTS = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
ROOT = os.path.dirname(TESTS)
sys.path.insert(0, TESTS)
