"""Writes tests/golden/templates.json: what jinja2, set up as transformers does, makes of templates, to judge src/text/template*.c by.

    python3 -m venv V && V/bin/pip install jinja2==3.1.6 gguf
    V/bin/python tests/text/make_template_goldens.py SmolLM2-135M-Instruct.Q4_1.gguf REAL.json > tests/golden/templates.json

REAL.json is golden/real/smollm2-135m.json of the project's reference scripts: its "messages" must render to its "text".
{"contexts": [..], "cases": [{"template", "context": its index, and "text" or "error"}]}.  An error is "raised" by the template
itself with a "message", "failed" in jinja2 too, or "beyond" what Stoa takes: it must refuse, not print something else.
"""
import json
import pathlib
import sys

import jinja2
import jinja2.ext
import jinja2.sandbox


class Raised(Exception):
    pass


def raise_exception(message):
    raise Raised(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment():
    made = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                                        extensions=[jinja2.ext.loopcontrols])
    made.filters["tojson"] = tojson
    made.globals["raise_exception"] = raise_exception
    return made


def judge(template, context):
    case = {"template": template, "context": context}
    try:
        case["text"] = environment().from_string(template).render(**context)
    except Raised as raised:
        case["error"], case["message"] = "raised", str(raised)
    except Exception:
        case["error"] = "failed"
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


# What jinja2 renders and Stoa refuses.
BEYOND = {
    "{#", "{% for x in l recursive %}{% endfor %}x", "{% macro f() %}{% endmacro %}x", "{{ l + [6] }}", "{{ a == 7.0 }}", "{{ 1_000 + 1 }}",
    "{{ s.upper }}", "{{ m.items }}", "{{ {a: 1} }}",
}


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
    for template in TEMPLATES + ["{{ " + line + " }}" for line in EXPRESSIONS.strip().split("\n")]:
        yield judge(template, {**VARIABLES, "messages": CONVERSATIONS[2]})


def main():
    contexts, rows = [], []
    for case in cases(*sys.argv[1:3]):
        context = json.dumps(case.pop("context"), separators=(",", ":"))
        if context not in contexts:
            contexts.append(context)
        case["context"] = contexts.index(context)
        if case["template"] in BEYOND:
            case = {"template": case["template"], "context": case["context"], "error": "beyond"}
        rows.append(json.dumps(case, separators=(",", ":")))
    print('{"contexts":[\n' + ",\n".join(contexts) + '\n],\n"cases":[\n' + ",\n".join(rows) + "\n]}")


if __name__ == "__main__":
    main()
