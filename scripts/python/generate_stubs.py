# SPDX-License-Identifier: Apache-2.0
"""Usage: generate_stubs.py SOURCE_DIR OUT_DIR

Writes what the Python package has of the protocol as OUT_DIR/meshloom/v1: its description (protocol.binpb) by protoc, a
module for each file that makes its messages of that (meshloom/protocol.py), and their types for editors and mypy.
OUT_DIR/meshloom/_version.py gets the version of the daemon that SOURCE_DIR is the source of.
"""

from __future__ import annotations

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

INNER = {"rank_service", "rank_file_service", "journal", "stored"}  # between the ranks and on disk: not for clients
_MODULE = '''# SPDX-License-Identifier: Apache-2.0
from meshloom.protocol import publish

publish("{file}", globals())
'''


def find_program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise SystemExit(f"generate_stubs: {name} is missing; on Debian: apt-get install protobuf-compiler")
    return found


def version_of(source: pathlib.Path) -> str:
    """That of the daemon, which CMake gives it."""
    text = (source / "CMakeLists.txt").read_text(encoding="utf-8")
    found = re.search(r"^project\(meshloom VERSION ([0-9.]+)", text, re.MULTILINE)
    if found is None:
        raise SystemExit(f"generate_stubs: {source}/CMakeLists.txt has no project(meshloom VERSION ...)")
    return found.group(1)


def write_types(protoc: str, proto_dir: pathlib.Path, names: list[str], package: pathlib.Path) -> None:
    """The .pyi files, whose modules import each other below "meshloom"."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([protoc, f"-I{proto_dir}", f"--pyi_out={folder}", *names], check=True)
        for made in sorted((pathlib.Path(folder) / "v1").glob("*.pyi")):
            text = made.read_text(encoding="utf-8")
            (package / made.name).write_text(re.sub(r"^from v1 import", "from meshloom.v1 import", text,
                                                    flags=re.MULTILINE), encoding="utf-8")


def generate(source: pathlib.Path, out_dir: pathlib.Path) -> None:
    protoc, proto_dir = find_program("protoc"), source / "proto"
    names = sorted(f"v1/{path.name}" for path in (proto_dir / "v1").glob("*.proto") if path.stem not in INNER)
    if not names:
        raise SystemExit(f"generate_stubs: {proto_dir}/v1 has no .proto files")
    package = out_dir / "meshloom" / "v1"
    package.mkdir(parents=True, exist_ok=True)
    subprocess.run([protoc, f"-I{proto_dir}", "--include_imports", f"--descriptor_set_out={package}/protocol.binpb",
                    *names], check=True)
    write_types(protoc, proto_dir, names, package)
    for name in names:
        file = name.removeprefix("v1/")
        (package / f"{file.removesuffix('.proto')}_pb2.py").write_text(_MODULE.format(file=file), encoding="utf-8")
    header = "# SPDX-License-Identifier: Apache-2.0\n"
    (package / "__init__.py").write_text(header, encoding="utf-8")
    (out_dir / "meshloom" / "_version.py").write_text(f'{header}VERSION = "{version_of(source)}"\n', encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    generate(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve())
