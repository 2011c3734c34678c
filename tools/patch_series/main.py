"""The command line of tools/series."""

import argparse
import os
import re
import shutil
import sys
import tempfile

import apply
import content
import git
from errors import Refused, WrongContent

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
AUTHOR = "The SHIFT authors <shift-authors@example.org>"
DONE, REFUSED, USAGE = 0, 1, 4
ABOUT = """Makes SHIFT's patch series for a git tree of rdma-core, release 44 or newer: a branch of commits on
top of the tree's HEAD, and patch files with a cover letter. The checkout stays as it is, whatever happens; if the
series does not fit, nothing is made.

exit status: 0 done, 1 refused (one line says why, and nothing was changed), 4 wrong usage"""


class Parser(argparse.ArgumentParser):
    def error(self, message):
        self.print_usage(sys.stderr)
        print("%s: %s" % (self.prog, message), file=sys.stderr)
        sys.exit(USAGE)


def person(said):
    if not re.fullmatch(r"[^<>\n]*[^<>\s] <[^<>\s@]+@[^<>\s@]+>", said):
        raise argparse.ArgumentTypeError("'%s' is not like 'NAME <mail@host>'" % said)
    return said


def arguments(given):
    parser = Parser(prog="series", description=ABOUT, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree", metavar="TREE", help="the git tree of rdma-core: a checkout or a bare repository")
    parser.add_argument("--signoff", metavar="'NAME <mail>'", type=person,
                        help="the author, who signs the commits off (default: %s, no sign-off)" % AUTHOR)
    parser.add_argument("--branch", default="shift", help="the branch to make (default: shift)")
    parser.add_argument("--base", default="HEAD", help="the commit below the series (default: HEAD)")
    parser.add_argument("--out", metavar="DIR", help="where the patches go: a folder that is empty or not there "
                        "(default: build/series of this repository)")
    parser.add_argument("--prefix", default="PATCH rdma-core", help="of the subjects (default: PATCH rdma-core)")
    parser.add_argument("--check", action="store_true", help="makes nothing; says of each commit whether it fits")
    return parser.parse_args(given)


def signed(message, signer):
    text = message.rstrip("\n") + "\n"
    return text + "\nSigned-off-by: %s\n" % signer if signer else text


def refuse_applied(tree, commits, project):
    brought = sorted({target for commit in commits for files in commit.files for _, target in files.list(project)})
    there = [path for path in brought if path in tree.files]
    if there:
        raise Refused("the series is applied already: the tree has %s" % there[0])


def refuse_out(out, tree):
    """Where the patches go must be empty, writable, and not in the user's checkout."""
    place, checkout = os.path.realpath(out), os.path.realpath(tree.folder)
    if os.path.commonpath([place, checkout]) == checkout:
        raise Refused("%s lies in the tree, which stays as it is: name another folder with --out" % out)
    if os.path.lexists(out) and (not os.path.isdir(out) or os.listdir(out)):
        raise Refused("%s is not an empty folder: name another one with --out" % out)
    parent = place
    while not os.path.exists(parent):
        parent = os.path.dirname(parent)
    if not os.path.isdir(parent) or not os.access(parent, os.W_OK | os.X_OK):
        raise Refused("%s cannot be written" % out)


def make_all(tree, commits, project, facts):
    """Yields (commit, the tree after it, what does not fit) for one after the other."""
    below = tree
    for commit in commits:
        below, refusals = apply.make_commit(commit, below, project, facts)
        yield commit, below, refusals


def check(tree, commits, project, facts):
    wrong = 0
    for commit, _, refusals in make_all(tree, commits, project, facts):
        print("%-7s %s: %s" % ("refused" if refusals else "fits", commit.name, commit.subject))
        for refusal in refusals:
            print("        " + refusal)
        wrong += bool(refusals)
    print("%d commits for rdma-core %s, %d do not fit" % (len(commits), facts.words["version"], wrong))
    return REFUSED if wrong else DONE


def write_cover(folder, project, facts):
    path = os.path.join(folder, next(n for n in sorted(os.listdir(folder)) if n.startswith("0000-")))
    subject, text = facts.filled(project.data("series/cover").decode(), "series/cover").split("\n", 1)
    with open(path, encoding="utf-8") as file:
        letter = file.read()
    with open(path, "w", encoding="utf-8") as file:
        file.write(letter.replace("*** SUBJECT HERE ***", subject).replace("*** BLURB HERE ***", text.strip("\n")))


def missing(place):
    """The folders that have to be made for the place and are not there, the outermost first."""
    return ([] if os.path.lexists(place) else missing(os.path.dirname(place)) + [place])


def move(folder, place):
    """Puts the finished folder in its place, in one step; its parents are there."""
    beside = tempfile.mkdtemp(prefix=".series-", dir=os.path.dirname(place))
    try:
        ready = os.path.join(beside, "patches")
        shutil.copytree(folder, ready)
        os.rename(ready, place)
    finally:
        shutil.rmtree(beside)


def hand_over(tree, workshop, patches, place, branch, commit):
    """Gives the user the patches and the branch: both or nothing."""
    new = missing(place)
    try:
        os.makedirs(place, exist_ok=True)
        move(patches, place)
        tree.take(workshop, branch, commit)
    except BaseException as error:
        shutil.rmtree(new[0] if new else place, ignore_errors=True)
        if not new:
            os.mkdir(place)
        if isinstance(error, OSError):
            raise Refused("%s cannot be written: %s" % (place, error)) from None
        raise


def make(options, tree, commits, project, facts):
    out = options.out or os.path.join(ROOT, "build", "series")
    refuse_out(out, tree)
    tree.refuse_branch(options.branch)
    who = options.signoff or AUTHOR
    made = []
    for commit, after, refusals in make_all(tree, commits, project, facts):
        if refusals:
            raise Refused(refusals[0])
        made.append((signed(commit.message, options.signoff), after.changed.values()))
    with git.Workshop(tree) as workshop:
        last = workshop.commit_all(made, who, project.seconds)
        patches = os.path.join(workshop.scratch.name, "patches")
        workshop.patches(patches, who, project.seconds, options.prefix)
        write_cover(patches, project, facts)
        hand_over(tree, workshop, patches, os.path.realpath(out), options.branch, last)
    print("branch %s: %d commits on rdma-core %s" % (options.branch, len(made), facts.words["version"]))
    print("patches: %s" % out)
    return DONE


def run(options):
    project = git.Project(ROOT)
    if project.is_dirty:
        print("note: changes of this repository that are not committed are in the series", file=sys.stderr)
    commits = content.load(project)
    tree = git.UserTree(options.tree, options.base)
    facts = apply.Facts(tree, project)
    refuse_applied(tree, commits, project)
    tree.refuse_changes(apply.paths_touched(commits, project))
    if options.check:
        return check(tree, commits, project, facts)
    return make(options, tree, commits, project, facts)


def main():
    options = arguments(sys.argv[1:])
    try:
        return run(options)
    except (Refused, WrongContent, OSError) as error:
        print("series: %s" % error, file=sys.stderr)
        return REFUSED
    except KeyboardInterrupt:
        print("series: interrupted, and nothing was changed", file=sys.stderr)
        return REFUSED
