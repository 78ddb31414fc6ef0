#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: make.py [--axolotl FOLDER]

Writes features.json anew, and with the folder of axolotl's templates (src/axolotl/utils/chat_templates/templates of
its sdist) models.json: what jinja2 makes of templates, for unit_chat_template.
"""
import argparse
import json
import pathlib

import jinja2

import conversations
import features
from reference import NOW, render

FOLDER = pathlib.Path(__file__).parent


def write(name, made):
    text = json.dumps(made, ensure_ascii=False, indent=0).replace("\u2028", "\\u2028").replace("\x85", "\\u0085")
    (FOLDER / name).write_text(text + "\n")


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--axolotl", type=pathlib.Path)
    options = parser.parse_args()
    made_with = f"jinja2 {jinja2.__version__}"
    cases = [{"template": source, **render(source, features.VARIABLES)} for source in features.templates()]
    write("features.json", {"made_with": made_with, "now": NOW, "variables": features.VARIABLES, "cases": cases})
    if options.axolotl is None:
        return
    kinds = conversations.kinds()
    models = []
    for path in sorted(options.axolotl.glob("*.jinja")):
        source = path.read_text()
        models.append({"name": path.stem, "template": source, "renderings": [render(source, one) for one in kinds]})
    source = "axolotl 0.19.0 (github.com/axolotl-ai-cloud/axolotl), Apache-2.0"
    write("models.json", {"templates_of": source, "made_with": made_with, "now": NOW, "kinds": kinds, "models": models})


main()
