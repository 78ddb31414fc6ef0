# SPDX-License-Identifier: Apache-2.0
"""Templates that are made up at random. Most of their expressions have the type that is wanted where they stand."""

TEXTS = ["s", "u", "e", "html", "'a'", "'é\\n'", "'a,b c'", "'Hello World'", "'  x\\t'", "''", "d['items']", "w[1]", "m[0].role", "m[0]['content']"]
NUMBERS = ["a", "b", "f", "0", "1", "-1", "7", "2.5", "l[0]", "l | length", "loop.index0 | default(3)", "d.x", "big", "1e-7"]
LISTS = ["l", "w", "m", "[]", "[1, 'a']", "(1, 2)", "d.y", "range(4)", "'abc' | list", "[3, 1, 2]", "[none, true, 1.0]", "d | list"]
DICTS = ["d", "{}", "{'k': [1]}", "m[0]", "deep", "{'b': 2, 'a': 1, 'C': 3}", "dict(q=1)"]
FLAGS = ["t", "true", "false", "n", "missing", "not t"]


class MadeUp:
    def __init__(self, draw):
        self.draw = draw

    def one(self, *ways):
        return self.draw.choice(ways)()

    def any(self, depth):
        return self.one(lambda: self.text(depth), lambda: self.number(depth), lambda: self.list(depth), lambda: self.dict(depth), lambda: self.flag(depth))

    def text(self, depth):
        if depth <= 0 or self.draw.random() < 0.15:
            return self.draw.choice(TEXTS)
        text, pick = self.text, self.draw.choice
        return self.one(
            lambda: f"({text(depth - 1)} + {text(depth - 1)})", lambda: f"({self.any(depth - 1)} ~ {self.any(depth - 1)})", lambda: f"({self.any(depth - 1)} | string)",
            lambda: f"({text(depth - 1)} | {pick(['upper', 'lower', 'title', 'capitalize', 'trim', 'reverse', 'indent', 'indent(2, true)', 'center(9)', 'string', 'truncate(5)', 'escape | string'])})",
            lambda: f"({text(depth - 1)}).{pick(['upper', 'lower', 'title', 'capitalize', 'swapcase', 'strip', 'lstrip', 'rstrip'])}()",
            lambda: f"({text(depth - 1)}).{pick(['strip', 'lstrip', 'rstrip'])}({text(0)})",
            lambda: f"({text(depth - 1)}).replace({text(0)}, {text(0)})", lambda: f"({text(depth - 1)} | replace({text(0)}, {text(0)}))",
            lambda: f"({text(depth - 1)})[{self.bound()}:{self.bound()}:{pick(['', '', '1', '2', '-1', '-2'])}]", lambda: f"(({text(depth - 1)}) ~ 'x')[{pick(['0', '-1'])}]",
            lambda: f"({self.list(depth - 1)} | join({text(0)}))", lambda: f"({text(0)}).join({self.list(depth - 1)} | map('string'))", lambda: f"({self.any(depth - 1)} | tojson)",
            lambda: f"({self.any(depth - 1)} | tojson(indent={pick(['1', '2', 'none'])}, ensure_ascii={pick(['true', 'false'])}))", lambda: f"({text(depth - 1)} * {pick(['0', '2', '3'])})",
            lambda: f"('%s|%5s|%r' % ({self.any(depth - 1)}, {text(0)}, {self.any(0)}))", lambda: f"('%05d %.2f %x' % ({self.number(0)} | int, {self.number(0)}, 255))",
            lambda: f"'{{}} {{:>5}}'.format({self.any(depth - 1)}, {text(0)})", lambda: f"({text(depth - 1)} if {self.flag(depth - 1)} else {text(0)})",
            lambda: f"({self.any(depth - 1)} | default({text(0)}, true) | string)", lambda: f"({text(depth - 1)}).zfill(7)", lambda: f"({self.list(depth - 1)} | list | string)",
        )

    def number(self, depth):
        if depth <= 0 or self.draw.random() < 0.15:
            return self.draw.choice(NUMBERS)
        number, text, pick = self.number, self.text, self.draw.choice
        return self.one(
            lambda: f"({number(depth - 1)} {pick('+-*')} {number(depth - 1)})", lambda: f"({number(depth - 1)} {pick(['/', '//', '%'])} {pick(['2', '-3', '0.5', '7'])})", lambda: f"(-({number(depth - 1)}))",
            lambda: f"({self.list(depth - 1)} | {pick(['length', 'count'])})", lambda: f"({text(depth - 1)} | length)", lambda: f"({number(depth - 1)} | {pick(['int', 'float', 'abs', 'round', 'round(1)'])})",
            lambda: f"({text(depth - 1)} | {pick(['int', 'float', 'int(5)', 'wordcount'])})", lambda: f"({text(depth - 1)}).{pick(['find', 'rfind', 'count'])}({text(0)})",
            lambda: f"({number(depth - 1)} if {self.flag(depth - 1)} else {number(0)})", lambda: f"([{number(0)}, {number(0)}] | {pick(['sum', 'min', 'max', 'first', 'last'])})", lambda: f"({pick(['2', '3', '-2'])} ** {pick(['2', '0', '3'])})",
        )

    def list(self, depth):
        if depth <= 0 or self.draw.random() < 0.15:
            return self.draw.choice(LISTS)
        some, text, pick = self.list, self.text, self.draw.choice
        return self.one(
            lambda: f"({some(depth - 1)} | list + [{self.any(depth - 1)}])", lambda: f"[{self.any(depth - 1)}, {self.any(depth - 1)}]", lambda: f"({text(depth - 1)}).split({pick(['', ', ', 'none, 1'])[:0]})",
            lambda: f"({text(depth - 1)}).split({pick(['none, 1', chr(39) + ',' + chr(39), chr(39) + 'l' + chr(39) + ', 1'])})", lambda: f"({text(depth - 1)}).rsplit('a', 1)", lambda: f"({text(depth - 1)}).splitlines()",
            lambda: f"({some(depth - 1)} | map('string') | {pick(['list', 'sort', 'unique | list', 'sort(reverse=true)', 'sort(case_sensitive=true)'])})", lambda: f"({some(depth - 1)} | {pick(['select', 'reject'])}({pick(['', repr('string'), repr('number'), repr('defined'), repr('none')])}) | list)",
            lambda: f"({some(depth - 1)} | list)[{self.bound()}:{self.bound()}:{pick(['', '', '1', '2', '-1'])}]", lambda: f"({some(depth - 1)} | {pick(['reverse', 'batch(2)', 'slice(2)', 'unique'])} | list)" if depth < 2 else some(0),
            lambda: f"m | {pick(['selectattr', 'rejectattr'])}({pick(['repr', 'n', 'role'])!r}) | list", lambda: f"(m | map(attribute={pick(['role', 'n', 'content.0'])!r}) | list)", lambda: f"({self.dict(depth - 1)}).{pick(['keys', 'values', 'items'])}() | list",
            lambda: f"({self.dict(0)} | {pick(['dictsort', 'items | list'])})", lambda: f"({text(depth - 1)} | list)", lambda: f"({some(depth - 1)} if {self.flag(depth - 1)} else {some(0)})", lambda: f"({text(depth - 1)}).partition('a')",
        )

    def dict(self, depth):
        if depth <= 0 or self.draw.random() < 0.4:
            return self.draw.choice(DICTS)
        return self.one(lambda: f"{{{self.text(depth - 1)}: {self.any(depth - 1)}, 'z': {self.any(0)}}}", lambda: f"dict({self.dict(depth - 1)}, k={self.any(depth - 1)})", lambda: f"({self.dict(depth - 1)}).copy()")

    def flag(self, depth):
        if depth <= 0 or self.draw.random() < 0.15:
            return self.draw.choice(FLAGS)
        any_, pick = self.any, self.draw.choice
        tests = ["defined", "none", "string", "mapping", "sequence", "iterable", "number", "integer", "float", "boolean", "true", "not defined", "undefined", "callable"]
        return self.one(
            lambda: f"({any_(depth - 1)} {pick(['==', '!='])} {any_(depth - 1)})", lambda: f"({self.number(depth - 1)} {pick(['<', '<=', '>', '>='])} {self.number(depth - 1)})", lambda: f"({self.text(depth - 1)} {pick(['<', '>', 'in', 'not in'])} {self.text(depth - 1)})",
            lambda: f"({any_(depth - 1)} {pick(['in', 'not in'])} {self.list(depth - 1)})", lambda: f"({any_(depth - 1)} is {pick(tests)})", lambda: f"(not {any_(depth - 1)})", lambda: f"({any_(depth - 1)} {pick(['and', 'or'])} {any_(depth - 1)})",
            lambda: f"({self.text(depth - 1)}).{pick(['startswith', 'endswith'])}({self.text(0)})", lambda: f"({self.text(depth - 1)}).{pick(['isalpha', 'isdigit', 'isupper', 'islower', 'isspace', 'istitle', 'isalnum'])}()", lambda: f"({self.text(0)} in {self.dict(depth - 1)})",
            lambda: f"({self.number(0)} < {self.number(0)} <= {self.number(0)})", lambda: f"({self.number(depth - 1)} | int is {pick(['odd', 'even', 'divisibleby 3', 'gt 1', 'in [1, 7]'])})",
        )

    def bound(self):
        return self.draw.choice(["", "", "0", "1", "2", "-1", "-2", "5", "-9", "99"])

    def tag(self, inside):
        pick = self.draw.choice
        blank, sign, end = pick(["", "", " ", "\n", "  \n\t"]), pick(["", "", "-", "+"]), pick(["", "", "-", "+"])
        return blank + "{%" + sign + " " + inside + " " + end + "%}" + pick(["", "", "\n", " ", "\n\n  "])

    def output(self):
        blank, sign, end = (self.draw.choice(["", "", "-"]) for _ in range(3))
        return self.draw.choice(["", " ", "\n"]) + "{{" + sign + " " + self.any(3) + " " + end + "}}" + self.draw.choice(["", " ", "\n", "text"])

    def statement(self, depth):
        if depth <= 0:
            return self.output()
        tag, any_ = self.tag, self.any
        name = self.draw.choice(["x", "y", "z", "a", "s", "l"])
        typed = {"a": self.number, "s": self.text, "l": self.list}.get(name, any_)(2)
        body = self.block(depth - 1)
        return self.one(
            lambda: tag(f"if {any_(2)}") + body + tag("else") + self.output() + tag("endif"), lambda: tag(f"if {self.flag(2)}") + body + tag(f"elif {self.flag(1)}") + body + tag("endif"),
            lambda: tag(f"for x in {self.list(2)}") + body + "{{ loop.index }}{{ loop.last }}" + tag("else") + "none" + tag("endfor"), lambda: tag(f"for x in {self.list(2)} if {self.draw.choice(['x', 'x is string', 'not x', 'x != 1'])}") + "{{ x }}{{ loop.length }}" + body + tag("endfor"),
            lambda: tag(f"for k, v in ({self.dict(1)}).items()") + "{{ k }}{{ v }}{{ loop.revindex }}" + tag(self.draw.choice(["if loop.first", "if k == 'a'"])) + tag(self.draw.choice(["break", "continue"])) + tag("endif") + "{{ loop.previtem }}" + tag("endfor"),
            lambda: tag(f"for {name} in {'l' if name == 'a' else 'w' if name == 's' else 'm'}") + body + tag(f"set {name} = {typed}") + "{{ " + name + " }}" + tag("endfor") + "{{ " + name + " }}", lambda: tag(f"set {name} = {typed}") + body, lambda: tag(f"if {self.flag(1)}") + tag(f"set {name} = {typed}") + tag("endif") + body,
            lambda: tag("set z") + body + tag("endset") + "{{ z | length }}{{ z }}", lambda: tag(f"set ns = namespace(v={self.text(1)})") + tag("for x in l") + tag("set ns.v = ns.v ~ x") + tag("endfor") + "{{ ns.v }}",
            lambda: tag(f"macro g(p, q={any_(1)})") + body + "{{ p }}{{ q }}" + tag("endmacro") + "{{ g(" + any_(1) + ") }}{{ g(q=1) }}", lambda: tag("macro c(p)") + "<{{ caller(p) }}>" + tag("endmacro") + tag(f"call(k) c({any_(1)})") + "{{ k }}" + body + tag("endcall"),
            lambda: tag("filter " + self.draw.choice(["upper", "trim", "indent", "replace('a', 'b') | title"])) + body + tag("endfilter"), lambda: tag(f"with y = {any_(2)}, x = {any_(1)}") + body + "{{ y }}" + tag("endwith"),
            lambda: self.draw.choice(["", " ", "\n "]) + "{#" + self.draw.choice(["", "-", "+"]) + " comment " + self.draw.choice(["", "-", "+"]) + "#}" + self.draw.choice(["", "\n", " "]) + body,
        )

    def block(self, depth):
        return "".join(self.statement(depth) for _ in range(self.draw.randint(1, 2)))


def block(draw):
    return MadeUp(draw).block(draw.choice([0, 0, 1, 1, 2]))
