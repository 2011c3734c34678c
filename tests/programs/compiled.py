"""Builds test programs against the distribution's libraries, for libraries without a program of their own."""

import os
import subprocess
import threading

HERE = os.path.dirname(os.path.abspath(__file__))


def compiled(build, compiler, source, *libraries):
    """Builds a program once in each build folder, and again when its source is newer."""
    source = os.path.join(HERE, source)
    folder = os.path.join(build, "programs")
    program = os.path.join(folder, os.path.splitext(os.path.basename(source))[0])
    if os.path.exists(program) and os.path.getmtime(program) > os.path.getmtime(source):
        return program
    os.makedirs(folder, exist_ok=True)
    draft = "%s.%d.%d" % (program, os.getpid(), threading.get_ident())  # several cells may build it at once
    done = subprocess.run([compiler, "-O2", "-g", "-Wall", "-Wextra", "-o", draft, source] +
                          list(libraries), capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError("%s does not compile: %s" % (os.path.basename(source), done.stderr[:300]))
    os.rename(draft, program)
    return program


def gloo_check(build):
    return compiled(build, "g++", "gloo_check.cc", "-std=c++17", "-lgloo", "-libverbs", "-lpthread")
