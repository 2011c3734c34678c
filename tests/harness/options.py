"""Command line options that many scripts share, so that each has one name and one meaning."""

import argparse
import os
import random


def script_parser(text, out):
    """Makes a parser. `text` is the script's docstring, and logs go to `out` by default."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build", help="build directory")
    parser.add_argument("--out", default=out, help="where logs of failed runs are kept")
    return parser


def seed_add(parser):
    """Adds the seed, which decides all that is random in a run."""
    parser.add_argument("--seed", type=int, default=int(os.environ.get("SHIFT_TEST_SEED", "1")),
                      help="seed of all that is drawn (SHIFT_TEST_SEED)")


def runs_add(parser, count):
    """Adds the options of a script with many runs, each of which follows from the seed and its index."""
    parser.add_argument("--runs", type=int, default=count)
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side")
    seed_add(parser)
    parser.add_argument("--only", type=int, action="append", help="run this index only")
    parser.add_argument("--json", help="write a summary here")
    parser.add_argument("--keep", action="store_true", help="keep the logs of good runs too")


def key_add(parser):
    """Adds the option that decides for all runs whether they have a job key; without it, each run draws that."""
    parser.add_argument("--key", action=argparse.BooleanOptionalAction, default=None,
                        help="all runs with a job key, or none (default: the seed and the index of a run decide)")


def key_again(options):
    """The option that was given, for the command that repeats a run."""
    return {None: "", True: " --key", False: " --no-key"}[options.key]


def journal_add(parser):
    """Adds the option that decides for all runs how what is posted is kept; without it, each run draws that."""
    parser.add_argument("--journal", choices=["notes", "copies"],
                        help="SHIFT_JOURNAL of all runs (default: the seed and the index of a run decide)")


def journal_again(options):
    return " --journal %s" % options.journal if options.journal else ""


def journal_settings(options, *run):
    """The run's variable of the environment. `run` is what all of a run follows from."""
    draw = random.Random("journal " + "/".join(map(str, run))).random()
    return {"SHIFT_JOURNAL": options.journal or ("copies" if draw < 0.25 else "notes")}


def mode_add(parser):
    """Adds the option that decides for all runs in which mode they are; without it, each run draws that."""
    parser.add_argument("--mode", choices=["relaxed", "exact", "auto"],
                        help="SHIFT_MODE of all runs (default: the seed and the index of a run decide)")


def mode_again(options):
    return " --mode %s" % options.mode if options.mode else ""


def mode_settings(options, *run):
    """The run's variable of the environment, as that of journal_settings()."""
    draw = random.Random("mode " + "/".join(map(str, run))).random()
    return {"SHIFT_MODE": options.mode or ("relaxed" if draw < 0.5 else "auto" if draw < 0.8 else "exact")}


def layer_add(parser, default=None):
    parser.add_argument("--layer", default=default, help="use the bin/shift-run of this prefix")
