"""build_ext for the kernels: one set of Cython directives for all of them.

Runs at build time only, inside the isolated build environment, so it may import
nothing but the standard library, setuptools and Cython.

PARSER_CYTHON_DEBUG=1 turns bounds checks on, for chasing a crash.
"""

from __future__ import annotations

import os
from pathlib import Path

from setuptools.command.build_ext import build_ext as _build_ext

DEBUG = os.environ.get("PARSER_CYTHON_DEBUG", "0") != "0"

DIRECTIVES = {
    "language_level": 3,
    "boundscheck": DEBUG,
    "wraparound": False,
    "initializedcheck": DEBUG,
    "cdivision": True,
    "embedsignature": True,
}
# No -ffast-math: it lets the compiler assume that there is no inf, and -inf is how the
# kernels say "this arc is forbidden".  No -march=native: wheels must run elsewhere; the
# hot loops are compiled for several instruction sets and chosen at load time (simd.h).
# Without errno and floating-point traps, square roots and comparisons can be vectorised.
# The compiler fuses no multiply-adds of its own: every machine gives the same bits.  fused.h says
# where they are wanted.
FAST = ["-O3", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off"]
CFLAGS = {"unix": ["-O1", "-g"] if DEBUG else FAST, "msvc": ["/O2"]}
LDFLAGS = {"unix": ["-lm"], "msvc": []}


class build_ext(_build_ext):
    def finalize_options(self) -> None:
        from Cython.Build import cythonize

        if self.distribution.ext_modules:
            headers = sorted(str(path) for path in Path("cython_ext").glob("*.pxd")) + sorted(
                str(path) for path in Path("cython_ext").glob("*.h")
            )
            for extension in self.distribution.ext_modules:
                extension.depends = headers
                extension.include_dirs.append("cython_ext")
            self.distribution.ext_modules[:] = cythonize(
                self.distribution.ext_modules,
                compiler_directives=DIRECTIVES,
                build_dir=os.path.join("build", "cython"),
                force=DEBUG,
                quiet=True,
            )
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()

    def build_extensions(self) -> None:
        kind = self.compiler.compiler_type
        for extension in self.extensions:
            extension.extra_compile_args += CFLAGS.get(kind, [])
            extension.extra_link_args += LDFLAGS.get(kind, [])
        super().build_extensions()
