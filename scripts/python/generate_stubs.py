# SPDX-License-Identifier: Apache-2.0
"""Usage: generate_stubs.py PROTO_DIR OUT_DIR

Writes the messages and service stubs of PROTO_DIR/v1 as the Python package OUT_DIR/meshloom/v1, with protoc and
grpc_python_plugin. The protocol's files import each other as "v1/..."; as Python modules they live below "meshloom",
so protoc is given copies that do the same.
"""

from __future__ import annotations

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

INNER = {"rank_service", "journal"}  # between the ranks and on disk: not for clients


def find_program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise SystemExit(f"generate_stubs: {name} is missing; on Debian: apt-get install protobuf-compiler-grpc")
    return found


def generate(proto_dir: pathlib.Path, out_dir: pathlib.Path) -> None:
    protoc, plugin = find_program("protoc"), find_program("grpc_python_plugin")
    with tempfile.TemporaryDirectory() as folder:
        staged = pathlib.Path(folder) / "meshloom" / "v1"
        staged.mkdir(parents=True)
        for source in sorted((proto_dir / "v1").glob("*.proto")):
            if source.stem in INNER:
                continue
            text = source.read_text(encoding="utf-8")
            (staged / source.name).write_text(re.sub(r'import "v1/', 'import "meshloom/v1/', text), encoding="utf-8")
        package = out_dir / "meshloom" / "v1"
        package.mkdir(parents=True, exist_ok=True)
        files = [str(path.relative_to(folder)) for path in sorted(staged.iterdir())]
        if not files:
            raise SystemExit(f"generate_stubs: {proto_dir}/v1 has no .proto files")
        subprocess.run(
            [protoc, f"-I{folder}", f"--python_out={out_dir}", f"--pyi_out={out_dir}",
             f"--plugin=protoc-gen-grpc_python={plugin}", f"--grpc_python_out={out_dir}", *files],
            check=True,
        )
        (package / "__init__.py").write_text("# SPDX-License-Identifier: Apache-2.0\n", encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    generate(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve())
