"""Writes tests/golden/templates.json: what transformers makes of chat templates, to judge src/text/template*.c by.

    python3.11 -m venv V && V/bin/pip install transformers==5.24.0 jinja2==3.1.6 gguf
    V/bin/python tests/text/make_template_goldens.py SmolLM2-135M-Instruct.Q4_1.gguf REAL.json > tests/golden/templates.json

REAL.json is golden/real/smollm2-135m.json of the project's reference scripts: its "messages" must render to its "text".
{"contexts": [..], "cases": [{"template", "context": its index, and "text" or "error"}],
 "chats": [{"file": one of tests/text/templates, "messages", "options", and "text" or "error"}]}.
An error is "raised" by the template itself with a "message", "failed" in jinja2 too, or "beyond" what Stoa takes: it must
refuse, not print something else.  The time is always 2024-07-26 15:04:05.
"""
import datetime
import json
import pathlib
import sys

import jinja2
import transformers.utils.chat_template_utils as chat_template_utils


class Now(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2024, 7, 26, 15, 4, 5)


chat_template_utils.datetime = Now
ENVIRONMENT = chat_template_utils._compile_jinja_template("").environment


def judge(template, context):
    case = {"template": template, "context": context}
    try:
        case["text"] = ENVIRONMENT.from_string(template).render(**context)
    except Exception as error:
        case["error"] = "failed"
        if type(error) is jinja2.exceptions.TemplateError:          # transformers' raise_exception()
            case["error"], case["message"] = "raised", str(error)
    return case


CONVERSATIONS = [
    [],
    [{"role": "user", "content": "Hi"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "  Two\nlines \n"}],
    [{"role": "user", "content": "Grüße, 世界 🙂"}, {"role": "assistant", "content": "<think>\nhm\n</think>\n\nYes."},
     {"role": "user", "content": "{{ no }} {% tag %} 'quoted' \"twice\""}],
    [{"role": "system", "content": ""}, {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
     {"role": "user", "content": "c"}, {"role": "assistant", "content": ""}],
    [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}],
]

CHATML = """{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""

HEADERS = """{{ bos_token }}
{% if messages and messages[0]['role'] == 'system' %}
  {% set system = messages[0]['content'] | trim %}
  {% set rest = messages[1:] %}
{% else %}
  {% set system = "" %}
  {% set rest = messages %}
{% endif %}
{% if system %}
<|start|>system<|end|>

{{ system }}<|eot|>
{% endif %}
{# every turn has its header #}
{% for m in rest %}
{% set content = '<|start|>' ~ m['role'] ~ '<|end|>\\n\\n' ~ m['content'] | trim ~ '<|eot|>' %}
{% if loop.first %}
  {% set content = '>>' ~ content %}
{% endif %}
{{ content }}
{% endfor %}
{% if add_generation_prompt %}<|start|>assistant<|end|>

{% endif %}
"""

ALTERNATING = """{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token }}{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}"""

TURNS = """{{ bos_token }}{% if messages and messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}{% for message in messages %}{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}{{ '<start_of_turn>' + role + '\\n' + message['content'] | trim + '<end_of_turn>\\n' }}{% endfor %}{% if add_generation_prompt %}{{'<start_of_turn>model\\n'}}{% endif %}"""

THINKING = """{%- set ns = namespace(last=-1, seen=false) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if not ns.seen and message.role == "user" and message.content is string and not(message.content.startswith('<tool>') and message.content.endswith('</tool>')) %}
        {%- set ns.seen = true %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is defined and message.content is not none else '' %}
    {%- if message.role == "assistant" %}
        {%- set thought = '' %}
        {%- if '</think>' in content %}
            {%- set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last %}
            {{- '<|im_start|>' + message.role + '\\n<think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role in ("user", "system") %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}"""

TOOLS = """{% if tools is not none and tools %}
# Tools
{% for tool in tools %}
{{ tool | tojson }}
{{ tool | tojson(indent=4) }}
{%- for key, value in tool.function.parameters.items() %}

- {{ key }}: {{ value if value is string else value | tojson }}
{%- endfor %}

{% endfor %}
{% endif %}
{% for message in messages if message.role != 'system' %}
{{ loop.index }}/{{ loop.length }} {{ message.role | upper }}: {{ message['content'] }}{{ "" if loop.last else "," }}
{% else %}
nothing said
{% endfor %}"""

TOOL_LIST = [{"type": "function", "function": {"name": "weather", "description": "The \"weather\" at <place> & more: é\n\t\\",
              "parameters": {"type": "object", "required": ["place"], "none": None, "yes": True, "no": False, "n": -3,
                             "empty": {}, "nothing": [], "nested": [[1, 2], {"a": [{}]}]}}}]

VARIABLES = {
    "a": 7, "b": -3, "zero": 0, "s": "Hello", "empty": "", "u": "Grüße 世界 🙂", "blank": " \t x y \n ", "yes": True, "no": False,
    "nil": None, "l": [1, 2, 3, 4, 5], "words": ["b", "a", "c"], "m": {"x": 1, "y": "two", "keys": 3}, "nested": {"a": {"b": [10, {"c": "deep"}]}},
    "mixed": [1, "1", True, None, [1], {"k": 1}],
    "half": 2.5, "small": 1e-5, "big": 1e16, "q": "it's \"q\" \\ \n<&>", "number": "42", "fraction": "3.75", "tree": [1, [2, [3, []]]],
    "people": [{"name": "Zoe", "age": 31, "tags": ["a"]}, {"name": "adam", "age": 27, "mail": None}, {"name": "Bob", "age": 31}],
}

# One expression each, all with VARIABLES.
EXPRESSIONS = r"""
1 + 2 * 3 - 4
(1 + 2) * 3
7 // 2
-7 // 2
7 // -2
-7 % 3
7 % -3
a // zero
a * b
-a
- -a
yes + 1
s + empty
s + 1
1 + s
s ~ 1 ~ yes ~ nil
s ~ missing ~ s
s * 2
3 * 'ab'
s * -1
l + [6]
(l + [6]) | length
'a' 'b' "c"
'tab\there' ~ "\u00e9\x41\U0001F642\\ \' \" \q"
a == 7
a == 7.0
a != 7 or b == -3
yes == 1
no == 0
'1' == 1
nil == none
missing == none
missing == other
missing != 1
l == [1, 2, 3, 4, 5]
(1, 2) == [1, 2]
(1, 2) == (1, 2)
m == {'keys': 3, 'y': 'two', 'x': 1}
a < 8
a <= 7
a > b
'abc' < 'abd'
'Z' < 'a'
'é' > 'z'
'a' < 1
l < 3
missing < 3
yes and no
no or 'x'
'' or 0 or nil
a and s
not a
not missing
not a == 7
not (a and no) and yes
'ell' in s
'' in s
'x' not in s
1 in s
missing in s
3 in l
'3' in l
'x' in m
1 in m
'x' in missing
1 in 5
1 in nil
(1, 2) in [(1, 2)]
s[0]
s[-1]
s[99] is defined
u[6]
u[2]
l[0] + l[-1]
l[-6] is defined
l[yes]
l['x'] is defined
m['x']
m.x
m['nope'] is defined
m.nope
m.nope.deeper
missing.x
missing['x']
missing[0]
missing[1:]
nil.x
nil['x'] is undefined
nested.a.b[1].c
nested['a']['b'][-1]['c']
m['keys']
s[1:]
s[:2]
s[1:-1]
s[::-1]
s[::2]
s[-3:]
s[3:1]
s[10:]
s[-99:99]
s[3:0:-1]
s[none:2]
u[4:8]
u[::-1]
l[1:] | join(',')
l[::-1] | join(',')
l[:-1] | join(',')
l[1:4:2] | join(',')
l[4:0:-2] | join(',')
l[::0]
l[:'x']
m[1:] is defined
'yes' if yes else 'no'
'yes' if no else 'no'
'yes' if no
('yes' if no) is defined
1 if no else 2 if no else 3
s | length
u | length
l | length
m | length
missing | length
a | length
l | count
blank | trim
blank | trim | length
'xxaxx' | trim('x')
a | trim
missing | trim
s | upper
s | lower
missing | upper
nil | upper
'hELLO wORLD' | capitalize
missing | default('d')
missing | default
nil | default('d')
nil | default('d', true)
empty | default('d')
empty | default('d', true)
empty | d('d', boolean=true)
missing.x | default('d')
m.nope | default('d')
l | join
l | join('-')
words | join(', ')
words | join(1)
s | join('.')
mixed[:4] | join('|')
missing | join(',')
a | join
l | first
l | last
[] | first
u | last
s | first
m | first
m | list | join(',')
s | list | join(',')
a | string + 'x'
yes | string
s | replace('l', 'L')
s | replace('l', 'L', 1)
s | replace('zz', 'L')
a | replace('7', 'x')
missing | replace('a', 'b')
m | items | list | length
m | tojson
l | tojson
mixed | tojson
u | tojson
blank | tojson
'<a href="x">&\'' | tojson
'\x00\x1f\x7f' | tojson
nil | tojson
missing | tojson
nested | tojson(indent=2)
[] | tojson(indent=2)
{} | tojson
(1, 2) | tojson
-a | string
-1 | string | length
1 + 2 | string | length
s | length + 1
a is defined
missing is defined
missing is not defined
m.nope is defined
missing is undefined
nil is none
nil is not none
missing is none
s is string
a is string
missing is string
m is mapping
l is mapping
l is sequence
s is sequence
m is sequence
a is sequence
missing is sequence
l is iterable
m is iterable
a is iterable
missing is iterable
a is number
yes is number
s is number
a is integer
yes is integer
yes is boolean
a is boolean
yes is true
a is true
no is false
nil is false
a is odd
a is even
b is odd
zero is even
10 is divisibleby 5
10 is divisibleby(3)
a is eq 7
a is equalto 7
a is ne 7
a is in l
9 is in [1, 2]
a is gt 3
a is lt 3
a is ge 7 and a is le 7
s is in ['Hello']
not a is defined
a is defined and missing is not defined
s.upper() ~ s.lower()
s.strip('Ho')
blank.strip()
blank.lstrip() ~ '|'
blank.rstrip() ~ '|'
'  x '.strip()
'\u2003x\x1c'.strip() | length
'ééxé'.strip('é')
'a,b,,c'.split(',') | join('|')
'a,b,,c'.split(',', 1) | join('|')
'a,b,,c'.split(',', 0) | join('|')
'a,b'.split(sep=',') | join('|')
' a  b c '.split() | join('|')
' a  b c '.split(none, 1) | join('|')
' a  b c '.split(maxsplit=1) | join('|')
''.split() | length
''.split(',') | length
'a'.split('')
'aXXbXXc'.split('XX')[-1]
s.startswith('He')
s.startswith('')
s.startswith('Hellooo')
s.startswith(('x', 'He'))
s.endswith('lo')
s.endswith(('x', 'y'))
s.startswith(1)
s.replace('l', '')
s.replace('l', 'LL', 1)
s.replace('H', 'J').lower()
'abc def'.capitalize()
m.get('x')
m.get('z')
m.get('z', 5)
m.items() | list | length
m.keys() | join(',')
m.values() | join(',')
nil.strip()
missing.strip()
a.strip()
l.strip()
range(3) | join(',')
range(1, 4) | join(',')
range(5, 0, -2) | join(',')
range(0) | length
range(1, 2, 0)
(1, 2) | length
() | length
(1,) | length
(1) + 1
[1, 2,] | length
{'a': 1, 'b': [2]} | tojson
{'a': 1}['a']
{'a': {'b': 2}}.a.b
[[1, 2], [3]][0][1]
"a" ~ ("b" ~ "c")
1_000 + 1
true and True
false or False
none == None
messages[0].role ~ messages | length
s.upper
m.items
s is defined and s is string and s | length > 3
s|upper|lower|trim|length
namespace(a=1).a
namespace(a=1).b is defined
namespace() is mapping
loop is defined
a | nosuchfilter
a is nosuchtest
nosuchfunction()
s.nosuchmethod()
a +
a b
(a
a)
[a
{a: 1}
'open
a..b
a | | b
a == 7.0 and 7.0 in l + [7]
l + [6]
m
mixed
people
(1,)
()
[(1, 'a'), {}]
q
[q, u, blank, empty, '\x00\x7f\u200b\xa0']
half
[half, small, big, 1e15, 123456789.125, -0.0, 1.0, 1e22, 0.1 + 0.2, 1e-4, 5e-324]
1_000 + 1
0x1F + 0o17 + 0b11
1.5e3 + 1_0.2_5
7 / 2
6 / 3
7 // 2.0
-7.5 // 2
-7.5 % 2
7.5 % -2
2 ** 10
2 ** 0.5
2 ** -1
-2 ** 2
2 ** 3 ** 2
2 ** 64
+a
+half - -half
1 < 2 < 3
3 > 2 > 2
1 < a <= 7 != 8
a in l in mixed
half > 2
big == 10000000000000000
9007199254740993 == 9007199254740992.0
yes + half
l * 2
(1, 2) + (3,)
[1] < [1, 2]
(1, 'b') > (1, 'a')
[] == ()
{'a': 1} == dict(a=1)
dict(a=1, b=[2])
dict(m, z=1)
dict([('k', 1), ['j', 2]])
{1: 'int', 2.5: 'float', none: 'none', true: 'one'}
{1: 'a'}[1] ~ {1: 'a'}[1.0]
{1: 'a'}['1'] is defined
people[0].tags.0
words.1
m.items()
m.keys()
m.values()
m.items() | list
m.items()[0] is defined
m.items() | length
range(3) | list
range(3)[1:] | list
range(0, 10, 3)[-1]
range(100001) | length
range(5) is sequence
m.keys() is sequence
(words | map('upper')) is sequence
words | map('upper') | list
words | map('upper') | length
words | map('replace', 'a', 'x') | join
words | map('nosuch') | list
people | map(attribute='name') | list
people | map(attribute='mail') | list
people | map(attribute='mail', default='none') | list
people | map(attribute='tags.0', default='-') | join(',')
people | selectattr('age', 'gt', 30) | map(attribute='name') | join(', ')
people | selectattr('mail') | list
people | selectattr('mail', 'defined') | list | length
people | selectattr('mail', 'undefined') | list | length
people | rejectattr('age', 'equalto', 31) | map(attribute='name') | list
people | selectattr('age', '==', 27) | list | length
people | selectattr('nosuch') | list
(people | selectattr('nosuch')) and 'an iterator is true'
l | select('odd') | list
l | select('divisibleby', 2) | list
l | select | list
mixed | select('string') | list
mixed | reject('none') | list
[0, 1, '', 'x'] | reject | list
missing | select | list
none | select | list
l | select('nosuch') | list
l | sort(reverse=true)
words | sort
['b', 'A', 'a', 'B'] | sort
['b', 'A', 'a', 'B'] | sort(case_sensitive=true)
people | sort(attribute='age') | map(attribute='name') | list
people | sort(attribute='age,name', reverse=true) | map(attribute='name') | list
people | sort(attribute='name') | map(attribute='name') | list
mixed | sort
['a', 'A', 'b', 'a'] | unique | list
['a', 'A', 'b', 'a'] | unique(case_sensitive=true) | list
people | unique(attribute='age') | map(attribute='name') | list
people | groupby('age')
people | groupby('age') | map('first') | list
people | groupby('mail', default='no') | map('last') | map('length') | list
l | reverse | list
'héé' | reverse
m | reverse | list
l | reverse
m | dictsort
m | dictsort(by='value')
{'b': 1, 'A': 2, 'a': 3} | dictsort(case_sensitive=true, reverse=true)
m | items | list
missing | items | list
l | items
l | sum
l | sum(start=half)
people | sum(attribute='age')
words | sum
l | min ~ l | max
words | max
people | max(attribute='age')
[] | max is defined
l | batch(2) | list
l | batch(2, 0) | list
l | slice(2) | list
l | slice(3, 'x') | list
half | round
3.5 | round
-0.4 | round
2.675 | round(2)
2.665 | round(2)
a | round
half | round(0, 'ceil')
2.51 | round(1, 'floor')
a | round(1, method='ceil')
b | abs
-2.5 | abs
s | abs
'42' | int
' 42 ' | int
'4_2' | int
'-7' | int + 1
'0x1f' | int(base=16)
'0x1f' | int
'42.9' | int
'nan' | int
'x' | int(5)
half | int
none | int
yes | int
l | int
missing | int
'3.75' | float
'x' | float
'1e3' | float
'inf' | float
a | float
s | center(11) ~ '|'
s | indent
'a\nb\n\nc' | indent
'a\nb\n\nc\n' | indent(2, true)
'a\nb\n\nc' | indent('> ', blank=true)
'a\r\nb' | indent(1)
'one two three four' | truncate(9)
'one two three four' | truncate(9, true)
'one two three four' | truncate(9, false, '…', 0)
'one two' | truncate(5)
'one-two  three_3 é' | wordcount
'hello wORLD-foo (bar)' | title
"they're bill's" | title
"they're bill's".title()
'ß éa ǆ' | upper
'ÀÉ ǅ İ' | lower
'ῼab' | capitalize
'ß' | capitalize
'ΑΣ' | lower
'<a href="x">&\'' | escape
('<b>' | escape) ~ '<b>'
('<b>' | safe) ~ '<b>'
('<b>' | escape) + '<b>'
'%s is %d, %5.2f|%-5s|%05d|%x' | format('pi', 3, 3.14159, 'ab', 42, 255)
'%(a)s %(b)r' | format(a=1, b='x')
'%s' | format
'%s' | format(1, 2)
'%d' | format('x')
'%%' | format
'%s and %s' % (1, [2])
'%s' % l
'%s' % (l,)
'%5s|%-5s|%.2s' % ('é', 'b', 'abc')
'%+d % d %c' % (1, 2, 3)
'{} {} {{}}'.format(1, 'b')
'{1}{0}'.format(1, 2)
'{a[0]} {b.x}'.format(a=[1], b=m)
'{:>5}|{:<5}|{:^5}|{:*^7}'.format(1, 2, 'a', 'é')
'{:05d} {:,} {:.2f} {:x} {:+} {:%}'.format(42, 1234567, 3.14159, 255, 7, 0.5)
'{!r:>5} {!s}'.format('a', none)
'{} {0}'.format(1)
'{'.format()
'{x}'.format()
s.find('l') ~ s.rfind('l') ~ s.find('z') ~ u.find('世') ~ s.find('l', 3) ~ s.find('l', -1) ~ s.find('', 99)
s.index('z')
s.index('e') ~ s.rindex('l')
s.count('l') ~ s.count('') ~ 'aaaa'.count('aa') ~ s.count('l', 3)
'a b  c'.rsplit(' ', 1)
'a b  c '.rsplit(none, 1)
' a b  c '.rsplit()
'a\nb\r\nc\x0bd\n'.splitlines()
'a\nb\r\nc'.splitlines(true)
''.splitlines()
'ab'.replace('', '-')
'ab'.replace('', '-', 2)
'xabx'.removeprefix('x').removesuffix('x').removesuffix('zz')
'a=b=c'.partition('=')
'a=b=c'.rpartition('=')
'abc'.partition('=')
'abc'.rpartition('=')
'-'.join(words)
'-'.join(l)
'-'.join('abc')
'42'.zfill(5) ~ '-4'.zfill(5) ~ '+'.zfill(3)
'ab'.ljust(5, '.') ~ 'ab'.rjust(5) ~ 'ab'.center(5) ~ 'abc'.center(6, '*')
'12'.isdigit() ~ 'a1'.isdigit() ~ ''.isdigit() ~ 'ab'.isalpha() ~ 'a1'.isalnum() ~ ' \t'.isspace() ~ 'AB'.isupper() ~ 'aB1'.islower()
'é'.isalpha()
'Ab' is lower
'ab1' is lower and 'AB' is upper
l.count(1) ~ l.index(3)
l.index(99)
l.append(1)
l.append is defined
m.update({'x': 2})
m.pop('x')
m.copy()
m.get('x') ~ m.get('keys') ~ m.get(1, 'd') ~ m.get('z')
m.get([1])
a.real
a.__class__
s.__class__ is defined
m.__class__
m['__class__'] is defined
s.upper is callable
raise_exception is callable
missing is callable
range is defined and namespace is defined and nosuch is not defined
half is float
a is float
half is number
half is integer
none is sameas none
yes is sameas true
1 is sameas true
a is divisibleby 2.5
half is odd
people is sequence and people is iterable and people is not mapping
m is eq m
tojson is defined
half | tojson
[1e16, 0.1, -1.5, 1e-7, 1.0] | tojson
m | tojson(indent=4)
m | tojson(separators=(',', ':'))
m | tojson(sort_keys=true)
u | tojson(ensure_ascii=true)
nested | tojson(false, 2, (';', '='), true)
m | tojson(indent='\t')
m | tojson(indent=0)
m | tojson(indent=true)
{1: 2, none: 3, true: 4, 2.5: 5} | tojson
m.items() | tojson
range(2) | tojson
(words | map('upper')) | tojson
namespace(a=1, b='x')
namespace(m, z=1).x
namespace({'a': 1}).a
namespace(1)
strftime_now('%Y-%m-%d %H:%M:%S')
strftime_now('%d %b %Y, %A %B %-d %j %y %I%p %%')
strftime_now('[%f%z%Z]')
strftime_now('')
strftime_now()
range(*[1, 4]) | list
dict(**m) | length
'%s%s' | format(*[1, 2])
words | join(d='-')
words | join(', ', attribute=0)
'a' if no else 'b' if no else 'c'
('a' if no) ~ '|'
[1, 2, 3][::-1][0]
'abc'[1:][::-1]
tree
'\101\x41\0'
"\N{DIGIT ONE}"
1if a else 2
a if a else
a.b.c
(words | first).upper()
(words | list)[0]
words | first | upper
x|default('a')|upper ~ 'b'
not missing is defined
not a is defined or yes
a is defined is defined
a is string or b is number
{'a': 1}|length
loop
self
s | filesizeformat
lipsum()
cycler(1, 2)
joiner(',')
"""

# Whole templates, all with VARIABLES.
TEMPLATES = [
    "", "plain", "\n", "line\n", "line\n\n", "\r\nline\rmore\r\n", "a{# comment #}b", "a\n{# comment #}\nb", "a\n  {# comment #}\n  b",
    "a {#- comment -#} b", "{# open", "{{ a", "{% if a", "{{ a }", "{% if a }}", "{", "{{", "{%", "{#", "a { b } c", "{ {a} }", "{{ '}}' }}", "{{ '{%' }}",
    "{{ {'a': {'b': 1}}['a']['b'] }}", "{{ a }}\n", "{{ a }}\n\n", "{{ a -}}\n\n x", "x \n {{- a }}", "x \n {{ a }}", "x\n  {{ a }}\n  y",
    "{% if a %}\nx\n{% endif %}\ny", "  {% if a %}  \n  x\n  {% endif %}  \n  y", "z  {% if a %}\nx{% endif %}", "{%+ if a %}x{% endif %}", "   {%+ if a %}x{% endif %}",
    "{% if a +%}\nx{% endif +%}\ny", "{% if a -%}   \n\n x{%- endif %} y", "x\n\n   {%- if a %}y{% endif -%}\n\n z", "{%- if a -%} x {%- endif -%}",
    "{% if a %}\n\nx{% endif %}", "{% if no %}1{% elif a == 7 %}2{% else %}3{% endif %}", "{% if no %}1{% elif nil %}2{% elif empty %}3{% else %}4{% endif %}",
    "{% if no %}1{% endif %}", "{% if a %}{% if no %}1{% else %}2{% endif %}{% endif %}", "{% if a %}x", "{% endif %}", "{% else %}", "{% if %}x{% endif %}",
    "{% for x in l %}{{ x }}{% endfor %}", "{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }} {% endfor %}",
    "{% for x in l %}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.previtem }}{{ loop.nextitem }};{% endfor %}", "{% for x in [] %}x{% else %}none{% endfor %}",
    "{% for x in l %}x{% else %}none{% endfor %}", "{% for x in missing %}x{% else %}none{% endfor %}", "{% for x in nil %}x{% endfor %}", "{% for x in a %}x{% endfor %}",
    "{% for c in u %}[{{ c }}]{% endfor %}", "{% for k in m %}{{ k }},{% endfor %}", "{% for k, v in m.items() %}{{ k }}={{ v }},{% endfor %}",
    "{% for k, v in m | items %}{{ k }}={{ v }},{% endfor %}", "{% for k, v in l %}x{% endfor %}", "{% for a, b in [(1, 2), [3, 4], 'xy'] %}{{ a }}-{{ b }} {% endfor %}{{ a }}",
    "{% for x in l if x is odd %}{{ loop.index }}:{{ x }} {% endfor %}", "{% for x in l if x > 9 %}{{ x }}{% else %}none{% endfor %}", "{% for x in l if x != a if yes %}{% endfor %}",
    "{% for x in l %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 4 %}{% break %}{% endif %}{{ x }}{% endfor %}", "{% break %}", "{% for x in [] %}{% else %}{% break %}{% endfor %}",
    "{% for x in l %}{% for y in words %}{% if loop.first %}{% continue %}{% endif %}{{ x }}{{ y }}{{ loop.index }}{% break %}{% endfor %}{{ loop.index }} {% endfor %}",
    "{% for x in l %}{% for y in [] %}{% else %}{% break %}{% endfor %}{{ x }}{% endfor %}",
    "{% for x in 1, 2, 3 %}{{ x }}{% endfor %}", "{% for x in (1, 2) if x > 1 %}{{ x }}{% endfor %}", "{% for x in range(3) %}{{ x }}{% endfor %}", "{% for x in l[1:] %}{{ x }}{% endfor %}",
    "{% for x in l recursive %}{% endfor %}x", "{% for x in l %}{{ x }}", "{% for x %}{% endfor %}", "{% for in l %}{% endfor %}", "{% for 1 in l %}{% endfor %}",
    "{% set x = 1 %}{{ x }}", "{% set x = 1 %}{% for y in l %}{% set x = x + y %}{{ x }} {% endfor %}{{ x }}", "{% for y in l %}{{ x }}{% set x = y %}{% endfor %}{{ x }}",
    "{% if a %}{% set x = 5 %}{% endif %}{{ x }}", "{% if no %}{% set x = 5 %}{% endif %}{{ x is defined }}", "{% set a = a + 1 %}{{ a }}", "{% set x, y = 1, 2 %}{{ x }}{{ y }}", "{% set x, y = [1] %}",
    "{% set x = 1, 2 %}{{ x | length }}", "{% set x %}", "{% set x = %}", "{% set 1 = 2 %}", "{% set x.y = 2 %}", "{% set m.x = 2 %}", "{% set ns = namespace(n=0, s='') %}{% for x in l %}{% set ns.n = ns.n + x %}{% set ns.s = ns.s ~ x %}{% endfor %}{{ ns.n }} {{ ns.s }} {{ ns.other is defined }}",
    "{% set ns = namespace() %}{% set ns.self = ns %}{{ ns.self.self.self is defined }}{{ ns == ns.self }}", "{% set ns = namespace(l=[]) %}{% for x in l %}{% set ns.l = ns.l + [x * 2] %}{% endfor %}{{ ns.l | join(',') }}",
    "{% set ns = namespace() %}{% for x in l %}{% set ns.loop = loop %}{% endfor %}{{ ns.loop.length }}",
    "{{ raise_exception('no: ' ~ a) }}", "{% if no %}{{ raise_exception('x') }}{% endif %}fine", "{{ raise_exception() }}", "{{ missing.x.y }}", "{{ missing + 1 }}", "{{ missing }}|{{ nil }}|{{ yes }}|{{ a }}",
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}", "{{ a }}{{ b }}\n{{ s }}", "{{ a\n  +\n  1 }}", "{{- a -}}", "{{+ a }}", "{% macro f() %}{% endmacro %}x", "{% nosuch %}", "{%%}", "{{}}", "{% 1 %}",
    "{% if a %}\n  {% if b %}\n    deep\n  {% endif %}\n{% endif %}\nend\n", "a\n\n\n{%- if a %}\n\nb\n\n{%- endif %}\n\nc\n", "\t{% if a %}\t{{ a }}\t{% endif %}\t", "\u00a0{% if a %}x{% endif %}", "x\u00a0\n{%- if a %}y{% endif %}", "\v{% if a %}x{% endif %}",
    "{{ 'a\nb' }}", "{{ 'a\r\nb' }}", "{{ 'it\\'s' }}", '{{ "a\\\nb" }}', "{{ s }}{# {{ a }} {% if %} #}{{ s }}", "{# #}\n{# #}\n\nx", "x{# #}\n", "{##}x", "{#-#}x", "{#- -#} x", "x {#--#} y", "{#+ c +#}\nx", "  {#+ c #}\nx",
]


MORE_TEMPLATES = [
    "{% macro f() %}x{% endmacro %}{{ f() }}{{ f }}", "{% macro f(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }};{% endmacro %}{{ f(1) }}{{ f(1, 3) }}{{ f(1, c=4) }}{{ f(b=5) }}{{ f() }}",
    "{% macro f(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, 3, k=4) }}", "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, 2) }}", "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(z=2) }}",
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, a=2) }}", "{% macro f(a=1, b) %}{% endmacro %}x", "{% macro f(n) %}{{ n }}{% if n > 0 %},{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}",
    "{% macro f() %}{{ a }}{{ later }}{% endmacro %}{% set a = 1 %}{% set later = 2 %}{{ f() }}", "{% for x in l %}{% macro f() %}{{ x }}{{ loop.index }}{% endmacro %}{{ f() }}{% endfor %}{{ f is defined }}",
    "{% macro f() %}{% set y = 1 %}{{ y }}{% endmacro %}{{ f() }}{{ y is defined }}", "{% macro f(x) %}{{ x is defined }}{% endmacro %}{{ f() }}{{ f(missing) }}{{ f(none) }}", "{{ f() }}{% macro f() %}x{% endmacro %}",
    "{% macro f() %}  x  {% endmacro %}{{ f() | trim }}{{ f().upper() }}{{ f() | length }}", "{% macro f(x) %}{{ x | tojson }}{% endmacro %}{{ f({'a': [1]}) }}{{ f(*[1]) }}{{ f(**{'x': 2}) }}",
    "{% macro f() %}<{{ caller() }}>{% endmacro %}{% call f() %}in{% endcall %}", "{% macro f(x) %}<{{ caller(x, 2) }}>{% endmacro %}{% call(a, b) f(1) %}{{ a }}{{ b }}{% endcall %}{{ a }}",
    "{% macro f() %}{{ caller is defined }}{{ caller() if caller else 'none' }}{% endmacro %}{{ f() }}", "{% macro f() %}x{% endmacro %}{% call f() %}y{% endcall %}", "{% call a %}x{% endcall %}", "{% call range(3) %}x{% endcall %}",
    "{% macro list(items) %}{% for i in items %}{{ caller(i) }}{% endfor %}{% endmacro %}{% call(x) list(words) %}[{{ x }}{{ s }}]{% endcall %}", "{% macro loop() %}x{% endmacro %}{{ loop() }}",
    "{% macro g() %}{{ caller() }}{% endmacro %}{% macro f() %}{% call g() %}{{ caller() }}{% endcall %}{% endmacro %}{% call f() %}x{% endcall %}", "{% set f = raise_exception %}{{ f('by another name') }}",
    "{% set r = range %}{{ r(3) | list }}", "{% set u = s.upper %}{{ u() }}", "{% set ns = namespace(f=s.upper) %}{{ ns.f() }}", "{% set range = 3 %}{{ range }}", "{% set range = 3 %}{{ range(2) }}",
    "{% set x %}a{{ a }}b{% endset %}[{{ x }}]{{ x is string }}", "{% set x | trim | upper %}  a  {% endset %}[{{ x }}]", "{% set x %}{% set y = 1 %}{% endset %}{{ y is defined }}{{ x | length }}", "{% set ns = namespace() %}{% set ns.x %}b{% endset %}{{ ns.x }}",
    "{% for x in l %}{% set y %}{{ x }}{% if x == 2 %}{% break %}{% endif %}{% endset %}{{ y }}{% endfor %}", "{% set x %}", "{% set x, y = 'ab' %}{{ y }}{{ x }}", "{% set (x, y), z = (1, 2), 3 %}{{ x }}{{ y }}{{ z }}", "{% set ns = namespace() %}{% set ns.a, b = 1, 2 %}{{ ns.a }}{{ b }}",
    "{% set x, = [1] %}{{ x }}", "{% for (x, y), z in [((1, 2), 3)] %}{{ x }}{{ y }}{{ z }}{% endfor %}", "{% for x, in [[1], [2]] %}{{ x }}{% endfor %}", "{% set true = 1 %}", "{% set x = y = 1 %}", "{% set x[0] = 1 %}",
    "{% filter upper %}a{{ s }}{% endfilter %}", "{% filter replace('a', 'b') | trim %} a {% endfilter %}", "{% filter length %}abc{% endfilter %}", "{% filter indent(2) %}a\nb\n{% endfilter %}", "{% filter nosuch %}{% endfilter %}", "{% filter upper %}{% set y = 1 %}{% endfilter %}{{ y is defined }}",
    "{% with x = 1, y = 2 %}{{ x }}{{ y }}{% endwith %}{{ x is defined }}", "{% set x = 5 %}{% with x = 1, y = x %}{{ x }}{{ y }}{% endwith %}", "{% with %}{% set z = 1 %}{{ z }}{% endwith %}{{ z is defined }}",
    "{% generation %}a{{ a }}{% endgeneration %}b", "{% for x in l %}{% generation %}{{ x }}{{ loop.index }}{% set y = x %}{% endgeneration %}{{ y is defined }}{% endfor %}", "{% for x in l %}{% generation %}{% break %}{% endgeneration %}{% endfor %}", "{% generation %}",
    "{% for x in tree recursive %}{{ loop.depth }}{{ loop(x) if x is iterable else x }}{% endfor %}", "{% for x in tree recursive %}{{ loop.depth0 }}:{{ x if x is number }}{{ loop(x) if x is sequence }};{% else %}-{% endfor %}", "{% for x in l %}{{ loop([1]) }}{% endfor %}",
    "{% for x in [1] recursive %}{{ loop() }}{% endfor %}", "{% set n = namespace(t=tree) %}{% for x in n.t recursive %}{% set y = x %}{% if x is sequence %}({{ loop(x) }}){% else %}{{ y }}{% endif %}{% endfor %}", "{% for x in tree if x recursive %}{{ x if x is number else loop(x) }}{% endfor %}",
    "{% for x in l recursive %}{{ x }}{% if x > 2 %}{% break %}{% endif %}{% endfor %}", "{% for x in l %}{{ loop.cycle('a', 'b') }}{% endfor %}", "{% for x in [1, 1, 2, 2, 1] %}{{ loop.changed(x) }} {% endfor %}", "{% for x in l %}{{ loop.cycle() }}{% endfor %}",
    "{% for x in l %}{{ loop }}{% endfor %}", "{% for x in l %}{{ loop | length }}{% endfor %}", "{% for x in l %}{% for y in words %}{{ loop.index }}{% else %}{% endfor %}{{ loop.index }}{% endfor %}", "{% for x in words | map('upper') %}{{ x }}{{ loop.last }}{{ loop.length }}{% endfor %}",
    "{% for x in l %}{% continue %}{% else %}every pass was left{% endfor %}", "{% for x in l %}{% if x == 3 %}{% break %}{% endif %}{% else %}not this{% endfor %}", "{% for x in l %}{% break %}{% else %}left at once{% endfor %}", "{% for x in l %}{{ loop.index }}{% else %}{{ loop is defined }}{% endfor %}",
    "{% set it = words | map('upper') %}{{ it | first }}{{ it | list }}{{ it | list }}", "{% set it = words | map('upper') %}{{ 'A' in it }}{{ it | list }}", "{% set it = words | map('upper') %}{% for x in it %}{{ x }}{% endfor %}{% for x in it %}{{ x }}{% endfor %}{{ 'true' if it }}",
    "{% for x in l %}{% set loop = 1 %}{% endfor %}", "{% set loop = 1 %}{{ loop }}", "{% for loop in l %}{% endfor %}", "{% for x in l: %}{{ x }}{% endfor %}", "{% if a: %}{{ a }}{% else: %}x{% endif %}", "{% print a %}", "{% print a, b %}",
    "{% raw %}{{ a }} {% if %}{% endraw %}", "a {%- raw -%}  {{ b }}  {%- endraw -%} c", "  {% raw %}\n x\n  {% endraw %}\ny", "{% raw %}{# {% endraw %}{# c #}", "{% raw %}x", "{%raw%}x{%endraw%}", "{%+ raw %}x{%+ endraw %}\n", "\n  {% raw +%}x{% endraw +%}\n",
    "{% include 'x' %}", "{% import 'x' as y %}", "{% from 'x' import y %}", "{% extends 'x' %}", "{% block b %}x{% endblock %}", "{% autoescape true %}{% endautoescape %}", "{% do l.append(1) %}", "{% trans %}x{% endtrans %}", "{% debug %}",
    "{% if no %}{{ l.append(1) }}{% endif %}fine", "{% if no %}{{ nosuch() }}{% endif %}fine", "{% if no %}{{ s.nosuch() }}{% endif %}fine", "{{ m.x.y.z is defined }}", "{{ people[5].name }}", "{{ people[5].name is defined }}", "{{ people[0].nosuch.deeper is defined }}",
    "{{- '' }}\n{%- set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}{{ '<think>x</think>\n\nyes'.split('</think>')[-1].lstrip('\n') }}", "{{ date_string if date_string is defined else '26 Jul 2024' }}{{ date_string | default('none') }}",
    "{% if messages %}{{ messages[0].content is string }}{% endif %}", "{{ messages | map(attribute='role') | unique | join(',') }}", "{{ (messages | last).content }}{{ (messages | selectattr('role', 'eq', 'user') | list | last).content }}", "{{ messages[-1]['content'][:3] ~ '…' }}",
    "{%- for key, value in m | dictsort -%}\n    {{ key }}={{ value }}{{ \", \" if not loop.last }}\n{%- endfor -%}", "a\n    {%- if yes -%}\n    b\n    {%- endif %}\n\n    c", "{%- for x in l -%}\n\n{{ x }}\n\n{%- endfor -%}\n", "  {%+ for x in l +%}\n  {{ x }}\n  {%+ endfor +%}\n",
    "x {#- a -#}\n\n y {# b +#}\n z", "{{ a }}{#\n multi\n line #}\n{{ missing.x.y }}", "{{ '{{' }}{{ '%}' }}{{ \"}}\" }}{{ {'}}': 1}['}}'] }}", "{{ [1,\n 2\n][1] }}", "{%if a%}{%set x=1%}{{x}}{%endif%}", "{% if a %}{% elif b %}{% else %}{% elif c %}{% endif %}", "{% endfor %}", "{% else %}",
    "{% set ns = namespace(a=1) %}{% set ns.b = ns %}{{ ns.b.a }}", "{% set ns = namespace(a=[]) %}{% for x in l %}{% set ns.a = ns.a + [x] %}{% endfor %}{{ ns.a }}{{ ns }}", "{% set m.x = 1 %}", "{% set nosuch.x = 1 %}", "{{ namespace(a=1)['a'] }}", "{% set ns = namespace(items=3) %}{{ ns.items }}",
    "{% if not tools is defined %}{% set tools = none %}{% endif %}{{ tools }}", "{% set messages = messages[1:] %}{{ messages | length }}", "{% for a in l %}{{ a }}{% endfor %}{{ a }}", "{% for x in l %}{% set a = x %}{% endfor %}{{ a }}", "{% for x in l %}{{ a }}{% set a = x %}{% endfor %}",
    "{% if yes %}{% set q = 1 %}{% else %}{% set q = 2 %}{% endif %}{{ q }}", "{% if no %}{% set q = 1 %}{% endif %}{{ q | length }}", "{% for x in l %}{% if x == 1 %}{% set once = 1 %}{% endif %}{{ once is defined }}{% endfor %}",
]


# What jinja2 renders and Stoa refuses.
BEYOND = {
    "{#", "{{ 2 ** 0.5 }}", "{{ 2 ** -1 }}", "{{ 2 ** 64 }}", "{{ 'ΑΣ' | lower }}", "{{ ('<b>' | escape) + '<b>' }}", "{{ '%+d % d %c' % (1, 2, 3) }}", "{{ 'é'.isalpha() }}", "{{ a.real }}", "{{ 1if a else 2 }}",
    '{{ "\\N{DIGIT ONE}" }}', "{{ s | filesizeformat }}", "{{ cycler(1, 2) }}", "{{ joiner(',') }}", "{{ lipsum() }}", "{{ self }}", "{{ s.upper }}", "{{ m.items }}", "{{ l | reverse }}", "{{ l | items }}", "{{ a is divisibleby 2.5 and x }}",
    "{% block b %}x{% endblock %}", "{% autoescape true %}{% endautoescape %}", "{% print a, b %}", "{% if no %}{{ nosuch() }}{% endif %}fine", "{% if no %}{{ s.nosuch() }}{% endif %}fine",
}

TEMPLATES_DIR = pathlib.Path(__file__).parent / "templates"
WALKS_PARTS = {"gemma3", "glm4"}        # they take content as a list

WEATHER = {"type": "function", "function": {"name": "get_weather", "description": "The \"weather\" of a <place> & more: é ☃\n'quoted'",
           "parameters": {"type": "object", "properties": {
               "place": {"type": "string", "description": "A town,\nor a \"\"\"village\"\"\"."}, "days": {"type": "integer", "default": 3, "description": "How many."},
               "unit": {"type": "string", "enum": ["C", "F"], "default": "C"}, "limit": {"type": "number", "minimum": 0.5, "maximum": 1e16},
               "where": {"type": "object", "properties": {"lat": {"type": "number"}, "names": {"type": "array", "items": {"type": "string"}}}, "required": ["lat"]},
               "either": {"oneOf": [{"type": "string", "default": "x"}, {"type": "number", "description": "n"}]}, "mixed": {"type": ["string", "null"]},
               "grid": {"type": "array", "items": {"type": "array", "items": {"type": "boolean"}}}}, "required": ["place"]},
           "return": {"type": "string"}}}
CLOCK = {"type": "function", "function": {"name": "clock", "description": "The time.", "parameters": {"type": "object", "properties": {}}}}
DOCUMENTS = [{"doc_id": 1, "title": "Grüße", "text": "one"}, {"title": "b", "text": "two\nlines"}]


def call(name, arguments, number=0):
    return {"id": f"abcdef{number:03}", "type": "function", "function": {"name": name, "arguments": arguments}}


def text_parts(*texts):
    return [{"type": "text", "text": text} for text in texts]


# (messages, options): content may be null, left out or a list, as it comes from the API.
CHATS = [
    ([], {}),
    ([{"role": "user", "content": "Hi"}], {}),
    ([{"role": "system", "content": "Be brief. /no_think"}, {"role": "user", "content": "  Two\nlines \n"}], {"documents": DOCUMENTS}),
    ([{"role": "user", "content": "Grüße, 世界 🙂"}, {"role": "assistant", "content": "<think>\nhm\n</think>\n\nYes."}, {"role": "user", "content": "{{ no }} {% tag %} 'quoted'"}], {"enable_thinking": False}),
    ([{"role": "user", "content": "a"}, {"role": "assistant", "content": "<think>so</think>The sky is"}], {}),
    ([{"role": "user", "content": "a"}, {"role": "user", "content": "b"}], {"date_string": "1 Jan 2025", "reasoning_effort": "high"}),
    ([{"role": "system", "content": "Use tools."}, {"role": "user", "content": "Weather in Bern?"}, {"role": "assistant", "content": None, "tool_calls": [call("get_weather", {"place": "Bern", "days": 2, "where": {"lat": 46.95}})]},
      {"role": "tool", "tool_call_id": "abcdef000", "name": "get_weather", "content": "22 C, \"sunny\""}, {"role": "assistant", "content": "Sunny."}, {"role": "user", "content": "Thanks"}], {"tools": [WEATHER, CLOCK]}),
    ([{"role": "user", "content": "Both?"}, {"role": "assistant", "tool_calls": [call("get_weather", {"place": "Zürich <x>"}), call("clock", {}, 1)]}, {"role": "tool", "tool_call_id": "abcdef000", "content": "{\"t\": 22}"},
      {"role": "tool", "tool_call_id": "abcdef001", "content": "12:00"}], {"tools": [CLOCK, WEATHER], "tools_in_user_message": False, "builtin_tools": ["code_interpreter", "brave"]}),
    ([{"role": "user", "content": "Think."}, {"role": "assistant", "content": "", "reasoning_content": "Let me see.", "tool_calls": [call("clock", {"zone": "UTC", "n": 1.5, "ok": True, "nothing": None})]},
      {"role": "tool", "tool_call_id": "abcdef000", "content": text_parts("22 C", "sunny")}], {"tools": [WEATHER]}),
    ([{"role": "system", "content": text_parts("Be kind.")}, {"role": "user", "content": text_parts(" first ", "second é")}, {"role": "assistant", "content": text_parts("ok")}, {"role": "user", "content": "plain"}], {}),
    ([{"role": "user", "content": ""}, {"role": "assistant", "content": None}, {"role": "user"}], {"thinking": True, "controls": {"length": "short"}}),
]


def normal(messages, walks):
    """What template_render_messages() makes of messages before a template sees them."""
    made = []
    for message in messages:
        content = message.get("content")
        if content is None:
            content = ""
        elif isinstance(content, list) and not walks:
            content = "\n".join(part["text"] for part in content)
        made.append({**message, "content": content})
    return made


def chats():
    for path in sorted(TEMPLATES_DIR.glob("*.jinja")):
        template = path.read_text()
        for messages, options in CHATS:
            for prompt in (True, False):
                context = {"tools": None, "documents": None, "bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": prompt, **options}
                case = judge(template, {**context, "messages": normal(messages, path.stem in WALKS_PARTS)})
                del case["template"], case["context"]
                yield {"file": path.stem, "messages": messages, "options": {"add_generation_prompt": prompt, **options}, **case}


def cases(gguf_path, real_path):
    import gguf
    template = gguf.GGUFReader(gguf_path).get_field("tokenizer.chat_template").contents()
    for record in json.loads(pathlib.Path(real_path).read_text())["records"]:
        if "messages" in record:
            case = judge(template, {"messages": record["messages"], "add_generation_prompt": True, "bos_token": "", "eos_token": ""})
            assert case["text"] == record["text"]
            yield case
    for text in [template, CHATML, HEADERS, ALTERNATING, TURNS, THINKING, TOOLS]:
        for messages in CONVERSATIONS:
            for prompt in (False, True):
                yield judge(text, {"messages": messages, "add_generation_prompt": prompt, "bos_token": "<s>", "eos_token": "</s>",
                                   "tools": TOOL_LIST if prompt else None})
    for template in TEMPLATES + MORE_TEMPLATES + ["{{ " + line + " }}" for line in EXPRESSIONS.strip().split("\n")]:
        yield judge(template, {**VARIABLES, "messages": CONVERSATIONS[2]})


def main():
    contexts, rows = [], []
    for case in cases(*sys.argv[1:3]):
        context = json.dumps(case.pop("context"), separators=(",", ":"))
        if context not in contexts:
            contexts.append(context)
        case["context"] = contexts.index(context)
        assert "0x" not in case.get("text", "") or case["template"] in BEYOND or "0x1f" in case["template"], case
        if case["template"] in BEYOND:
            case = {"template": case["template"], "context": case["context"], "error": "beyond"}
        rows.append(json.dumps(case, separators=(",", ":")))
    families = [json.dumps(chat, separators=(",", ":")) for chat in chats()]
    print('{"contexts":[\n' + ",\n".join(contexts) + '\n],\n"cases":[\n' + ",\n".join(rows) + '\n],\n"chats":[\n' +
          ",\n".join(families) + "\n]}")


if __name__ == "__main__":
    main()
