# SPDX-License-Identifier: Apache-2.0
"""Builds the package; what it has of the protocol is made from proto/v1 on the way."""

import atexit
import pathlib
import shutil
import sys
import tempfile

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parent.parent
sys.path.insert(0, str(HERE))

import generate_stubs  # noqa: E402  (found by the line above)


class BuildWithStubs(build_py):
    def run(self) -> None:
        super().run()
        generate_stubs.generate(SOURCE, pathlib.Path(self.build_lib).resolve())


# Nothing of a build stays in the source tree.
scratch = tempfile.mkdtemp(prefix="meshloom-python-")
atexit.register(shutil.rmtree, scratch, ignore_errors=True)

setup(
    name="meshloom",
    version=generate_stubs.version_of(SOURCE),
    description="Client of meshloomd: jobs, training runs driven step by step, models and text",
    license="Apache-2.0",
    python_requires=">=3.11",
    install_requires=["grpcio>=1.51", "protobuf>=3.21.12", "numpy>=1.24"],
    extras_require={"plot": ["matplotlib"], "wandb": ["wandb"], "mlflow": ["mlflow"]},
    packages=["meshloom", "meshloom.tracking"],
    package_data={"meshloom": ["py.typed"]},
    cmdclass={"build_py": BuildWithStubs},
    options={"build": {"build_base": scratch}, "egg_info": {"egg_base": scratch}},
)
