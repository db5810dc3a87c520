"""Stand-ins for the CUDA libraries that the torch wheel is linked to, so that it loads on a machine without them.

usage: standins.py SITE_PACKAGES

The torch wheel of the package index is built for CUDA and names a dozen NVIDIA libraries, gigabytes that a CPU never
calls. What the dynamic linker wants of them is little: a file by each name, with the symbols and symbol versions that
torch's own libraries refer to. This makes such files; every function in them returns 1, an error in each of these
interfaces. The CUDA runtime is not replaced: the real one is small and says properly that there is no device.
"""

import collections
import pathlib
import re
import subprocess
import sys
import tempfile

# What NVIDIA's libraries and their functions are called. The driver (libcuda) is opened by name when there is a device.
LIBRARY = re.compile(r"lib(cu|nccl|nv)")
FUNCTION = re.compile(r"(cu|nccl|nv)[A-Za-z]+")
REAL = re.compile(r"lib(cudart|cuda)\.so")


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def wanted(libraries):
    """Of the libraries: which files they need, which version belongs to which file, what they lack, what they have."""
    files, file_of, lacking, having = set(), {}, set(), set()
    for library in libraries:
        files |= set(re.findall(r"\(NEEDED\).*\[(.*?)\]", output("readelf", "--wide", "--dynamic", library)))
        file = None
        for line in output("readelf", "--wide", "--version-info", library).splitlines():
            if found := re.search(r"File: (\S+)", line):
                file = found[1]
            elif found := re.search(r"Name: (\S+) +Flags", line):
                file_of[found[1]] = file
        for kind, names in (("--undefined-only", lacking), ("--defined-only", having)):
            names |= {line.split()[-1] for line in output("nm", "--dynamic", kind, library).splitlines()}
    return files, file_of, lacking, {name.split("@")[0] for name in having}


def plan(libraries):
    """Which stand-ins to make: file -> version ("" for none) -> names of functions."""
    files, file_of, lacking, having = wanted(libraries)
    here = {pathlib.Path(library).name for library in libraries}
    standins = {f: collections.defaultdict(set) for f in sorted(files - here) if LIBRARY.match(f) and not REAL.match(f)}
    for symbol in lacking:
        name, _, version = symbol.partition("@")
        version = version.lstrip("@")
        if name in having:
            continue
        if version and file_of.get(version) in standins:
            standins[file_of[version]][version].add(name)
        elif not version and FUNCTION.match(name):
            # No version, no file: any library that torch loads will do, so the first holds them all.
            next(iter(standins.values()))[""].add(name)
    return standins


def build(target, versions):
    with tempfile.TemporaryDirectory() as folder:
        source, script = pathlib.Path(folder, "standin.c"), pathlib.Path(folder, "versions")
        names = sorted(set().union(*versions.values()))
        source.write_text("".join(f"long {name}(void) {{ return 1; }}\n" for name in names) or "int nothing;\n")
        flags = []
        if any(versions):
            script.write_text("".join(f"{v} {{ global: {'; '.join(sorted(n))}; }};\n" for v, n in versions.items() if v))
            flags = [f"-Wl,--version-script={script}"]
        subprocess.run(["gcc", "-w", "-fno-builtin", "-shared", "-fPIC", f"-Wl,-soname,{target.name}", *flags, source, "-o", target], check=True)


def main(site_packages):
    site = pathlib.Path(site_packages)
    folder = site / "nvidia" / "cu13" / "lib"  # the first place where torch looks that exists
    folder.mkdir(parents=True, exist_ok=True)
    for name, versions in plan(sorted(map(str, (site / "torch" / "lib").glob("*.so*")))).items():
        build(folder / name, versions)


main(sys.argv[1])
