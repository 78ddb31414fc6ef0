# SPDX-License-Identifier: Apache-2.0
"""What jinja2 makes of a chat template, in an environment like that of transformers' apply_chat_template."""
import datetime
import json

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox
import jinja2.utils

NOW = 1_732_543_199  # Monday, 25 November 2024, 13:59:59 UTC


class Raised(jinja2.exceptions.TemplateError):
    """What raise_exception of a template throws."""


class Generation(jinja2.ext.Extension):
    """{% generation %}: notes where in the text the block's text is."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        call = self.call_method("note")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def note(self, caller):
        text = caller()
        rendered = self.environment.rendered
        begin = sum(map(len, rendered))
        self.environment.generated.append((begin, begin + len(text)))
        return text


class PlainNamespace(jinja2.utils.Namespace):
    """Attributes whose names begin with an underscore are refused."""

    def __init__(*args, **names):
        self, args = args[0], args[1:]
        attributes = dict(*args, **names)
        for name in attributes:
            PlainNamespace.check(name)
        jinja2.utils.Namespace.__init__(self, attributes)

    def __setitem__(self, name, value):
        PlainNamespace.check(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)

    @staticmethod
    def check(name):
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError(name)


def raise_exception(message):
    raise Raised(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment(now=NOW):
    made = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    made.filters["tojson"] = tojson
    utc = datetime.datetime.fromtimestamp(now, datetime.timezone.utc).replace(tzinfo=None)
    made.globals["raise_exception"] = raise_exception
    made.globals["strftime_now"] = utc.strftime
    made.globals["namespace"] = PlainNamespace
    return made


def render(source, variables, now=NOW, made=None):
    """{"text", "generated"} with ranges of bytes, {"raised"} or {"error"}."""
    made = made or environment(now)
    made.rendered, made.generated = [], []
    try:
        for part in made.from_string(source).generate(**variables):
            made.rendered.append(part)
        text = "".join(made.rendered)
        text.encode()
    except Raised as error:
        return {"raised": str(error)}
    except Exception as error:  # whatever Python makes of a wrong template
        return {"error": f"{type(error).__name__}: {error}"}
    ranges = [[len(text[:place].encode()) for place in one] for one in made.generated]
    return {"text": text, "generated": ranges}
