"""
Runs one of the failover tests, or one of their functions, in this process:

    shift_alone.py test|call NAME CONFIG

A test ends with the exit codes of the rdmacm tests. What a function returns is printed as JSON.
"""

import importlib
import json
import os
import sys
import types
import unittest

from args_parser import parser


def main():
    what, name, config = sys.argv[1:]
    parser.args = json.loads(config)
    # This stands in for the package, which would load each module of the suite.
    package = types.ModuleType('tests')
    package.__path__ = [os.path.dirname(os.path.abspath(__file__))]
    sys.modules['tests'] = package
    module = importlib.import_module('.'.join(name.split('.')[:2]))
    if what == 'call':
        print(json.dumps(getattr(module, name.split('.')[2])(parser.args)))
        return 0
    result = unittest.TestResult()
    getattr(module, name.split('.')[2])(name.split('.')[3]).run(result)
    for _, text in result.errors + result.failures + result.skipped:
        print(text)
    if result.errors or result.failures:
        return 2
    return 5 if result.skipped else 0


if __name__ == '__main__':
    sys.exit(main())
