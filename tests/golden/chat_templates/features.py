# SPDX-License-Identifier: Apache-2.0
"""Small templates, one for each thing that the language has, and the variables that all of them are rendered with."""

VARIABLES = {
    "a": 7, "b": -3, "f": 2.5, "t": True, "n": None, "s": "Hello World", "u": "Straße ΣΑΣ 東京", "e": "",
    "l": [3, 1, 2], "w": ["b", "A", "c", "a"], "d": {"x": 1, "y": [1, 2], "items": "i", "B": 2, "a": {"k": "v"}},
    "m": [{"role": "user", "content": "hi", "n": 2}, {"role": "assistant", "content": "yo"}, {"role": "user", "content": "", "n": 1}],
    "deep": {"a": [{"b": {"c": [1, 2.0, None, False, "q'\"\n"]}}]}, "big": 9007199254740993, "small": 1e-7, "html": "<a href='x'>&\"</a>",
}

# One expression a line, each rendered as {{ expression }}.
EXPRESSIONS = r"""
a + b * 2 - 1
a / 2 ~ '|' ~ a // 2 ~ '|' ~ b // 2 ~ '|' ~ a % 4 ~ '|' ~ b % 4 ~ '|' ~ a ** 2 ~ '|' ~ 2 ** -1
-a ** 2
2 ** 3 ** 2
7.5 // 2 ~ ' ' ~ -7.5 // 2 ~ ' ' ~ 7.5 % -2 ~ ' ' ~ 1e3 ~ ' ' ~ 1_000 ~ ' ' ~ 0x1f ~ ' ' ~ 0b11 ~ ' ' ~ 0o17 ~ ' ' ~ 1.5e-7
1e16 ~ ' ' ~ 123456789012345680.0 ~ ' ' ~ 1e15 ~ ' ' ~ 0.0001 ~ ' ' ~ 0.00001 ~ ' ' ~ 0.1 + 0.2 ~ ' ' ~ 1.0 ~ ' ' ~ -0.0
big ~ ' ' ~ big + 0.0 ~ ' ' ~ small
(True + True) ~ True * 3
not a == 7 or b < 0 and t
1 < 2 < 3, 1 < 3 < 2, 1 == 1.0, 'a' < 'b', [1, 2] < [1, 3], 1 != '1', (1, 2) == [1, 2]
'a' in s, 'World' in s, 3 in l, 4 not in l, 'x' in d, 'z' not in d, 2 in (1, 2), '' in e
a if t else b, (a if n), 'x' if missing else 'y'
missing, missing is defined, missing == missing, [missing]
missing ~ 'x' ~ n ~ t ~ f
[1, 'a', None, True, 2.0, (1,), (), [], {}, {'k': [1]}]
{'a': 1, "b": 'q\'"', 1: 2, None: 3, (1, 2): 4, 'a': 9}
'a' 'b' "c"
'tab\tnl\\n \x41\u00e9\U0001F600\101 \q'
l[0], l[-1], l[5] is defined, l[1:], l[:-1], l[::-1], l[::2], l[-2:], l[5:], l[2:0:-1], l[None:2]
s[0], s[-1], s[1:4], s[::-1], s[::-2], u[3:7], u[::-1], u[-2:], s[100:], s[-100:3], u[4], (1, 2, 3)[1:], range(10)[2:8:3]
d.x, d['x'], d.items is callable, d['items'], d.nope is defined, d.y.0, d['y'][1], deep.a[0].b.c
d.get('x'), d.get('q'), d.get('q', 5), d.keys(), d.values(), d.items(), d.copy()
d.keys() | list, d.values() | list, d.items() | list
s.upper(), s.lower(), s.title(), s.capitalize(), s.swapcase(), u.upper(), u.lower(), u.title(), u.capitalize(), u.swapcase()
'ΑΣ ΑΣΑ Σ ΑΣ. \'Σ'.lower(), 'ﬁx ǆ ŉ İ'.title(), 'ﬁx ǆ ŉ İ ß'.upper(), 'İ'.lower(), "it's they're".title()
'  a b '.strip(), '  a b '.lstrip(), '  a b '.rstrip(), 'xxaxx'.strip('x'), 'xyaxy'.lstrip('yx'), 'aéà'.rstrip('àé'), '\u3000\xa0x\u2028'.strip()
'a b  c '.split(), 'a b  c '.split(' '), 'a,b,c'.split(',', 1), ' a b c '.split(none, 1), 'a,b,c'.rsplit(',', 1), ' a b c '.rsplit(none, 1), ''.split(), ''.split(','), 'aaa'.rsplit('aa')
'a\nb\r\nc\n\nd'.splitlines(), 'a\nb'.splitlines(true), 'a\x0bb\u2028c'.splitlines()
s.startswith('He'), s.startswith(('x', 'H')), s.endswith('ld'), s.endswith('lo', 0, 5), s.startswith('World', 6), s.startswith('')
s.find('o'), s.rfind('o'), s.find('z'), s.index('W'), s.count('l'), s.count(''), s.find('o', 5), u.find('東'), s.find('', 3), s.rfind('')
s.replace('o', '0'), s.replace('l', 'L', 1), s.replace('', '-', 3), 'aaa'.replace('aa', 'b'), e.replace('', 'x')
','.join(['a', 'b']), ''.join(w), '-'.join('abc'), ', '.join(d)
'ab'.center(7, '*'), 'abc'.center(6) ~ '|', 'a'.ljust(3, '.'), 'a'.rjust(3), '-5'.zfill(4), 'abc'.zfill(2)
'a-b-c'.partition('-'), 'a-b-c'.rpartition('-'), 'abc'.partition('-'), 'prefix'.removeprefix('pre'), 'suffix'.removesuffix('fix')
'abc'.isalpha(), 'a1'.isalnum(), '12'.isdigit(), '²'.isdigit(), '½'.isnumeric(), ' \t'.isspace(), 'Ab'.istitle(), 'AB'.isupper(), 'ab'.islower(), ''.isalpha(), 'ß'.isalpha(), 'ab'.isascii(), 'é'.isascii(), '一'.isnumeric(), '٣'.isdecimal()
'%s is %d or %5.2f|%-5s|%05d|%x|%r|%%|%+d|%e|%g' % ('a', 5, 2.456, 'q', 42, 255, 'r', 3, 12345.678, 0.0001)
'%s' % a, '%s' % 'x', '%(x)s-%(y)s' % d, '%s %s' | format('a', 1), '%c%c' % ('x', 65), '%.2s' % 'abc', '%s' % [1, 2]
'{} {1}'.format(1) if false, '{} {}'.format(1, 'b'), '{1} {0}'.format(1, 'b'), '{x} {y[0]} {x!r}'.format(x='q', y=[5]), '{:>5}|{:<4}|{:^5}|{:05d}|{:.2f}|{:,}|{:x}|{:+}|{:%}'.format('a', 'b', 'c', 42, 3.14159, 1234567, 255, 7, 0.25), '{{}}'.format()
[1, 2] + [3], (1,) + (2,), [0] * 3, 'ab' * 2, 2 * 'x', [1] * 0, 'x' * -1
a | abs, b | abs, -2.5 | abs, f | round, 2.675 | round(2), 2.5 | round, 3.5 | round, 42.55 | round(1, 'floor'), 42.51 | round(1, 'ceil'), 7 | round, 1234.5678 | round(-2)
'42' | int, '42.9' | int, 'x' | int, 'x' | int(5), '0x1f' | int(0, 16), 3.99 | int, ' 7 ' | int, '1_000' | int, none | int, '-3' | int, true | int
'1.5' | float, 'x' | float, 'inf' | float, '1e5' | float, 3 | float, '.5' | float, 'x' | float(2)
s | upper, s | lower, s | title, s | capitalize, 'hello-wORLD (foo [bar' | title, 5 | upper, none | title, ' x ' | trim, 'xax' | trim('x'), 7 | string, n | string
w | sort, w | sort(reverse=true), w | sort(case_sensitive=true), l | sort, m | sort(attribute='role') | map(attribute='content') | list, m | sort(attribute='role,content') | map(attribute='n') | list, d | dictsort, d | dictsort(true), {'b': 2, 'a': 1} | dictsort(by='value'), {'b': 2, 'a': 1} | dictsort(reverse=true)
l | min, l | max, w | min, w | max, [] | min is defined, m | map(attribute='n') | select('defined') | max
['a', 'A', 'b', 'a'] | unique | list, ['a', 'A'] | unique(true) | list, m | unique(attribute='role') | list, [1, 1.0, true, '1'] | unique | list
l | first, l | last, [] | first is defined, s | first, s | last, d | first, d | last, range(3) | last, l | length, s | length, u | length, d | length, range(5) | count
l | join, l | join('-'), m | join(',', attribute='role'), w | join(1), [1, none, missing] | join(':'), 'abc' | join('.')
l | sum, m[:1] | sum(attribute='n'), [1, 2.5] | sum, [] | sum, [[1], [2]] | sum(start=[])
l | reverse | list, s | reverse, u | reverse, d | reverse | list
m | map(attribute='role') | list, m | map(attribute='n', default=0) | list, w | map('upper') | join, l | map('string') | list, [[1, 2], [3]] | map('first') | list, m | map(attribute='content.0') | list, ['a'] | map('replace', 'a', 'b') | list
l | select('odd') | list, l | reject('odd') | list, [0, 1, ''] | select | list, [0, 1, ''] | reject | list, l | select('>', 1) | list, l | select('in', [1, 2]) | list, w | select('equalto', 'A') | list
m | selectattr('n') | list | length, m | selectattr('role', 'equalto', 'user') | map(attribute='content') | list, m | rejectattr('role', '==', 'user') | list, m | selectattr('n', 'defined') | list | length, m | rejectattr('n', 'undefined') | list | length
missing | default('x'), e | default('x'), e | default('x', true), n | d('y', boolean=true), missing | default, 0 | default(5)
d | tojson, deep | tojson, u | tojson, u | tojson(true), d | tojson(indent=2), [] | tojson(indent=2), [1, {}] | tojson(indent=4), d | tojson(sort_keys=true), [1, 2] | tojson(separators=(',', ':')), deep | tojson(indent='\t'), '</script>&\x7f\x01' | tojson, '😀' | tojson(ensure_ascii=true), {1: 2, none: 3, true: 4, 1.5: 5} | tojson, [1e16, 0.1, 1.0, big] | tojson
'a\nb\n\nc' | indent, 'a\nb\n\nc' | indent(2, true), 'a\nb\n\nc' | indent(2, first=false, blank=true), 'a\nb' | indent('> '), '' | indent, '\n' | indent(1, true)
[1, 2, 3, 4, 5] | batch(2) | list, [1, 2, 3] | batch(2, 'x') | list, [1, 2, 3, 4, 5] | slice(2) | list, [1, 2, 3] | slice(2, 0) | list
'foo bar baz qux' | truncate(9), 'foo bar baz qux' | truncate(9, true), 'foo bar baz qux' | truncate(11), 'foo bar baz qux' | truncate(11, false, '…', 0), 'a, b-c d_e' | wordcount, 'x' | center(5)
html | escape, html | e ~ '<', html | safe, html | safe | string, (html | safe) + '<b>', '<' + (html | e), html | forceescape, html | safe | upper, (html | safe) is escaped, html | safe | length
d | items | list, missing | items | list, d | list, s | list | length, range(3) | list, 'é東' | list
d | attr('items') is callable, d | attr('x') is defined
a is number, t is number, t is boolean, t is integer, a is integer, f is float, s is string, l is sequence, s is sequence, d is sequence, d is mapping, l is iterable, a is iterable, n is none, none is none, missing is undefined, missing is iterable, missing is sequence, missing is callable
a is odd, a is even, a is divisibleby 7, a is divisibleby(2), s is lower, 'AB' is upper, t is true, t is false, a is sameas 7, n is sameas none, a is eq 7, a is gt 3, a is lt(3), a is ge 7, a is le 7, a is ne 7, 3 is in l, 'upper' is filter, 'odd' is test, 'nope' is filter, range is callable
a is not none and a is defined, not a is string, a is string or s is string, [1] is sequence and true
range(3), range(1, 10, 3) | list, range(5, 0, -2) | list, range(0), range(2)[5] is defined, range(0) | list
dict(a=1, b=[2]), dict({'x': 1}, y=2), dict([('a', 1)])
namespace(a=1).a, namespace({'b': 2}).b, namespace().c is defined, namespace(a=1)['a']
strftime_now('%d %B %Y, %A %b %a %H:%M:%S %p %I %j %y %m %-d %% %Y-%m-%dT%H:%M'), strftime_now('%c|%x|%X|%D|%F|%T|%e|%U|%w|%Z|%z|%f|%G-%V')
l.index(2), l.count(3), (1, 2).index(2), l.copy(), l.append is defined, d.update is defined, s.__class__ is defined, d._x is defined
s.nope is defined, a.nope is defined, n.nope is defined, l.nope is defined
[a, b][0 if t else 1], {'a': {'b': [1, {'c': 'deep'}]}}.a.b[1].c, (a, b)[1], 'abc'[1]
1 == true, 0 == false, 1.0 == 1, '1' == 1, none == false, [] == [], {} == {}, {'a': 1, 'b': 2} == {'b': 2, 'a': 1}
1 if 0 else 2 if 0 else 3, (1 if 0) is defined, 5 if a > 3 else 6
loop is defined, caller is defined
d['get']('x'), m[0]['role'] + ': ' + m[0].content | upper, m | length > 2 and m[-1].role == 'user'
html | replace('<', '{') | replace('a', 'b', 1), 5 | replace(5, 6), 'aXbX' | replace('X', '')
[1, [2, [3]]] | string | length, {'a': none} | string, (1, 'x') | string, 'q"' ~ ['q"', "q'", 'q\'"', '\\', '\x00\x7f\xa0\u200b😀']
'a' < 'B', 'é' < 'z', [1, 'a'] == [1, 'a'], 2 ** 62, -2 ** 63, 7 // -2, -7 % 3, 7 % -3, 1 / 3, 6 / 3, 2 ** 0.5
"""

# Whole templates.
TEMPLATES = [
    "{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.depth }}{{ x }};{% endfor %}",
    "{% for x in [] %}a{% else %}none{% endfor %}{% for x in l if x > 1 %}{{ x }}{{ loop.index }}{{ loop.length }}{{ loop.last }}{% else %}none{% endfor %}",
    "{% for x in l if x > 5 %}{{ x }}{% else %}none{% endfor %}{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k in d %}{{ k }}{% endfor %}",
    "{% for (x, y), z in [((1, 2), 3)] %}{{ x }}{{ y }}{{ z }}{% endfor %}{% for c in 'aé' %}[{{ c }}]{% endfor %}{% for x in missing %}x{% endfor %}",
    "{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% else %}E{% endfor %}|{% for x in l %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}|{% for x in [1] %}{% continue %}{% else %}E{% endfor %}",
    "{% for x in l recursive %}{{ x }}{% if x == 3 %}({{ loop([8, 9]) }}){% endif %}{{ loop.depth }}{{ loop.depth0 }}{% endfor %}",
    "{% for x in [[1, [2, [3]]], [4]] recursive %}{% if x is iterable %}[{{ loop(x) }}]{% else %}{{ x }}{% endif %}{% if not loop.last %},{% endif %}{% endfor %}",
    "{% for x in [1, 1, 2] %}{{ loop.changed(x) }}{{ loop.cycle('a', 'b') }}{% endfor %}{% for x in w | map('upper') %}{{ x }}{{ loop.last }}{{ loop.length }}{% endfor %}",
    "{% set x = 1 %}{% for i in l %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}",
    "{% set x = 1 %}{% if t %}{% set x = 2 %}{% set y = 3 %}{% endif %}{{ x }}{{ y }}{% if not t %}{% set z = 1 %}{% elif t %}{% set q = 4 %}{% else %}{% set r = 1 %}{% endif %}{{ z }}{{ q }}{{ r }}",
    "{% set ns = namespace(n=0, s='') %}{% for x in l %}{% set ns.n = ns.n + x %}{% set ns.s = ns.s ~ x %}{% set ns.new = x %}{% endfor %}{{ ns.n }}{{ ns.s }}{{ ns.new }}",
    "{% set a, b = b, a %}{{ a }}{{ b }}{% set (x, y) = (1, 2) %}{{ x }}{{ y }}{% set z = 1, 2 %}{{ z }}",
    "{% set ns = namespace() %}{% set ns.a, ns.b = 1, 2 %}{{ ns.a }}{{ ns.b }}",
    "{% set x %}a{{ a }}{% for i in l %}{{ i }}{% endfor %}{% endset %}[{{ x }}]{% set y | upper | replace('A', 'b') %}xa{% set inner = 1 %}{% endset %}{{ y }}{{ inner }}",
    "{% macro f(x, y=2, z=x) %}{{ x }}{{ y }}{{ z }}{% endmacro %}{{ f(1) }}|{{ f(1, 3) }}|{{ f(1, z=4) }}|{{ f(y=1, x=2) }}|{{ f() }}|{{ f(*[1, 2], **{'z': 3}) }}|{{ f }}",
    "{% macro f() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, a=3) }}{{ f() }}{% macro g(n) %}{{ n }}{% if n > 0 %}{{ g(n - 1) }}{% endif %}{% endmacro %}{{ g(3) }}",
    "{% macro box(t) %}<{{ t }}>{{ caller() }}</{{ t }}>{% endmacro %}{% call box('b') %}in {{ a }}{% endcall %}{% macro each(l) %}{% for x in l %}{{ caller(x, loop.index) }}{% endfor %}{% endmacro %}{% call(x, i) each(l) %}{{ i }}:{{ x }} {% endcall %}",
    "{% macro f() %}{{ caller is defined }}{{ caller }}{% endmacro %}{{ f() }}{% macro g(caller=none) %}{{ caller }}{% endmacro %}{{ g() }}",
    "{% set x = 1 %}{% macro f() %}{{ x }}{{ a }}{{ later }}{% endmacro %}{% set x = 2 %}{{ f() }}{% set later = 3 %}{{ f() }}",
    "{% for i in l %}{% macro f() %}{{ i }}{{ loop.index }}{% endmacro %}{{ f() }}{% endfor %}",
    "{% for a in l %}{{ a }}{% endfor %}{{ a }}{% for x in l %}{{ s }}{% set s = 'q' %}{{ s }}{% endfor %}{{ s }}",
    "{% for x in l %}{{ late }}{% endfor %}{% set late = 1 %}{{ late }}{% if t %}{{ a }}{% set a = 1 %}{% endif %}{{ a }}",
    "{% with x = 1, y = a %}{{ x }}{{ y }}{% set z = 3 %}{{ z }}{% endwith %}{{ x }}{{ z }}{% with %}{% set q = 1 %}{% endwith %}{{ q }}{% with a = 1, b = a %}{{ b }}{% endwith %}",
    "{% filter upper | trim %} a{{ s }} {% endfilter %}{% filter replace('a', 'b') %}banana{% set k = 1 %}{% endfilter %}{{ k }}",
    "{% print a, s %}{% print 1 %}{# comment #}a{#- trim -#} b {#\nlines\n#}\nc",
    "{% raw %}{{ a }}{% if %}{# x #}{% endraw %}{%- raw -%}  x  {%- endraw -%} y",
    "  {% if t %}\n  a\n  {% endif %}\nb\n  {%+ if t %}\n c {% endif +%}\n d\n\t{# c #}\n  {#+ c #} e\n  x {% if t %}y{% endif %}\n",
    "a  {%- if t -%}  b  {%- endif -%}  c\n\n{{- a -}}\n\n d {{ a -}}  \n e",
    "{{ '}}' }}{{ {'a': {'b': 1}} }}{{ '{%' }}{% set x = '%}' %}{{ x }}{{ \"{{\" }}",
    "line\r\nnext\rlast\n\n",
    "{% if a > 10 %}1{% elif a > 5 %}2{% elif a > 3 %}3{% else %}4{% endif %}{% if missing %}x{% endif %}{% if l %}y{% endif %}{% if [] %}z{% endif %}{% if not e %}w{% endif %}",
    "{% for m in m %}{{ m.role }}{% endfor %}{{ m | length }}{% for x in m recursive %}{{ x.role }}{% endfor %}",
    "{% set g = l | select('odd') %}{% for x in g %}{{ x }}{% endfor %}|{% for x in g %}{{ x }}{% endfor %}|{{ g is iterable }}{{ g is sequence }}",
    "{% set ns = namespace(stop=false) %}{% for x in l if not ns.stop %}{{ x }}{% if x == 1 %}{% set ns.stop = true %}{% endif %}{% endfor %}",
    "{% for x in l %}{% set y = x %}{% if loop.first %}{% set y = 'f' %}{% endif %}{{ y }}{% endfor %}{{ y }}",
    "{% for m in m %}{% generation %}{{ m.content }}{% set q = 1 %}{{ loop.index }}{% endgeneration %}é{{ q }}{% endfor %}",
    "{{ m[0].role }}{% generation %}{% endgeneration %}{% if t %}{% generation %}東{{ s }}{% endgeneration %}{% endif %}",
    "{% for x in l %}{% for y in l %}{{ loop.index }}{% if y == 1 %}{% break %}{% endif %}{% endfor %}{{ loop.index }} {% endfor %}",
    "{% set x = [] %}{% set x = x + [1] %}{{ x }}{% set d2 = dict(d, q=1) %}{{ d2.q }}{{ d2 | length }}",
    "{{ a }}{{- ' ' -}}{{ b }}{%- for x in l %} {{ x }}{%- endfor %}\n{%- if true %}\n\nz{% endif %}",
    "{%- macro m(x) -%}\n  {{ x }}\n{%- endmacro -%}\n{{ m(1) }}\n{{- m('y') | upper }}{{ m(m(2)) }}",
    "{% set f = s.upper %}{{ f() }}{% set g = d.get %}{{ g('x') }}{{ [s.upper][0]() }}",
    "{% for key in d.keys() | sort %}{{ key }}{% endfor %}{% for x in d.values() %}{{ loop.length }}{% endfor %}{% for k, v in d | dictsort %}{{ k }}{{ v }}{% endfor %}",
    "{% for x in range(3) %}{% for y in range(x) %}{{ x }}{{ y }} {% else %}e{% endfor %}{% endfor %}",
    "{{ raise_exception('no ' ~ a) }}", "{% if false %}{{ raise_exception('x') }}{% endif %}ok", "{{ raise_exception(1) }}",
    # What Python refuses.
    "{{ missing.x }}", "{{ missing + 1 }}", "{{ missing() }}", "{{ missing['x'] }}", "{{ missing < 1 }}", "{{ -missing }}",
    "{{ 'a' + 1 }}", "{{ 1 + 'a' }}", "{{ [1] + (1,) }}", "{{ 1 < 'a' }}", "{{ none + 1 }}", "{{ 1 / 0 }}", "{{ 1 // 0 }}", "{{ 1 % 0 }}", "{{ 1.5 / 0 }}",
    "{{ a() }}", "{{ s.nope() }}", "{{ l.append(1) }}", "{{ d.update({}) }}", "{{ d.pop('x') }}", "{{ 1 in 5 }}", "{{ 5 in 'a' }}", "{{ {[]: 1} }}",
    "{% for x in 5 %}{% endfor %}", "{% for x in none %}{% endfor %}", "{% for a, b in [1] %}{% endfor %}", "{% set a, b = [1] %}", "{% set a.x = 1 %}", "{% set ns = namespace() %}{% set ns._x = 1 %}",
    "{{ l | join(1, 2, 3) }}", "{{ a | length }}", "{{ g | length }}{{ a | list }}", "{{ l | sort(attribute='x.y') }}", "{{ [1, 'a'] | sort }}", "{{ missing | tojson }}", "{{ range(3) | tojson }}",
    "{{ l | map('nope') | list }}", "{{ l | select('nope') | list }}", "{{ l | map | list }}", "{{ range(1, 2, 0) }}", "{{ range(1000000) }}", "{{ l | first(1) }}", "{{ d | dictsort(by='x') }}",
    "{% macro f(x) %}{% endmacro %}{{ f(1, 2) }}", "{% macro f(x) %}{% endmacro %}{{ f(y=2) }}", "{% macro f(x) %}{% endmacro %}{{ f(1, x=2) }}",
    "{{ 'a'.split('') }}", "{{ 'a'.index('b') }}", "{{ l.index(9) }}", "{{ ','.join([1]) }}", "{{ l[::0] }}", "{{ d[1:2] }}", "{{ l['a':] }}", "{{ '%d' % 'x' }}", "{{ '%s %s' % 1 }}", "{{ '%s' % (1, 2) }}", "{{ '{} {}'.format(1) }}",
    "{% for x in l %}{{ loop(1) }}{% endfor %}", "{{ namespace(_x=1) }}", "{{ s | int('x', 99) }}", "{{ l | sum(start='') }}", "{{ 'x' * 'y' }}", "{{ d | items(1) }}",
]

# What is no template.
WRONG = [
    "{{", "{{ a", "{% if %}{% endif %}", "{% if a %}", "{% endif %}", "{% for x %}{% endfor %}", "{% for x in %}{% endfor %}", "{{ a + }}", "{{ + }}", "{{ (a }}", "{{ a) }}", "{{ [a, }}", "{{ {a} }}", "{{ a.  }}",
    "{{ a[] }}", "{{ a | }}", "{{ a is }}", "{{ 'a }}", "{{ a b }}", "{# a", "{% raw %}", "{% nope %}", "{% set %}", "{% set 1 = 2 %}", "{% set a.b.c = 1 %}", "{% set x = %}", "{% macro %}{% endmacro %}", "{% macro f(a=1, b) %}{% endmacro %}",
    "{% macro f(a %}{% endmacro %}", "{% break %}", "{% continue %}", "{% macro f() %}{% break %}{% endmacro %}", "{% for x in l %}{% set loop = 1 %}{% endfor %}", "{% for loop in l %}{% endfor %}", "{{ f(a=1, 2) }}", "{{ f(**a, *b) }}", "{{ f(a=1, a=2) }}",
    "{{ a ? b : c }}", "{{ a := 1 }}", "{{ 'a\\x4' }}", "{{ '\\u12' }}", "{{ a is b is c }}", "{% if a %}{% for x in l %}{% endif %}{% endfor %}", "{% call 5 %}{% endcall %}", "{% filter %}{% endfilter %}", "{{ }}", "{% %}", "{{ @ }}", "{% for true in l %}{% endfor %}", "{{ a, }}{{ , }}", "{% set x, = [5] %}",
]


def templates():
    lines = [line for line in EXPRESSIONS.strip().split("\n")]
    return ["{{ " + line + " }}" for line in lines] + TEMPLATES + WRONG
