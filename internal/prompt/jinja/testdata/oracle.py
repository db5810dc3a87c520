"""Writes down what Python makes of templates, for the tests of this package to compare with.

usage: oracle.py snippets             testdata/snippets.txt -> testdata/snippets.json
       oracle.py templates            testdata/templates/*.jinja x conversations.json -> testdata/templates.json
       oracle.py real FOLDER GOLDEN   FOLDER/NAME/{chat_template.jinja,tokenizer_config.json} -> GOLDEN/NAME.json
needs: pip install jinja2==3.1.6

The environment is the one that the transformers library renders chat templates with.
"""

import datetime
import glob
import json
import os
import sys

import jinja2
import jinja2.ext
import jinja2.meta
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = os.path.dirname(os.path.abspath(__file__))


class Raised(jinja2.exceptions.TemplateError):
    """What raise_exception raises."""


def raise_exception(message):
    raise Raised(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def strftime_now(format):
    return datetime.datetime(2026, 11, 5, 9, 7, 3, 45).strftime(format)


class Generation(jinja2.ext.Extension):
    """The generation tag, which renders its body."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("body"), [], [], body).set_lineno(line)

    def body(self, caller):
        return caller()


def environment():
    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = strftime_now
    return env


def outcome(source, variables):
    """[kind, text]: ok with the output, raised with the message, or the class of error alone."""
    try:
        template = environment().from_string(source)
    except Exception:
        return ["syntax", ""]
    try:
        text = template.render(**variables)
        text.encode()
        return ["ok", text]
    except Raised as e:
        return ["raised", str(e.message)]
    except Exception as e:
        if isinstance(e, UnicodeEncodeError):
            return ["unicode", ""]
        return ["fault", ""]


def dump(path, value):
    with open(path, "w", encoding="utf8") as f:
        json.dump(value, f, ensure_ascii=False, indent=1)
        f.write("\n")


def load(path):
    with open(path, encoding="utf8") as f:
        return json.load(f)


def conversations():
    """Variables by name: the shared ones, overlaid by those of each conversation."""
    data = load(os.path.join(HERE, "conversations.json"))
    return {name: {**data["shared"], **own} for name, own in data["conversations"].items()}


def snippets():
    """Cases are lines, in which \\n stands for a line break. The first line has the variables."""
    with open(os.path.join(HERE, "snippets.txt"), encoding="utf8") as f:
        lines = [line.rstrip("\n") for line in f]
    variables = json.loads(lines[0])
    cases = []
    for line in lines[1:]:
        if line and not line.startswith("//"):
            cases.append([line] + outcome(line.replace("\\n", "\n"), json.loads(json.dumps(variables))))
    dump(os.path.join(HERE, "snippets.json"), {"variables": variables, "cases": cases})
    kinds = [c[1] for c in cases]
    print({k: kinds.count(k) for k in sorted(set(kinds))})


def render_all(source):
    return {name: outcome(source, json.loads(json.dumps(v))) for name, v in conversations().items()}


def templates():
    out = {}
    for path in sorted(glob.glob(os.path.join(HERE, "templates", "*.jinja"))):
        with open(path, encoding="utf8") as f:
            out[os.path.basename(path).removesuffix(".jinja")] = render_all(f.read())
    dump(os.path.join(HERE, "templates.json"), out)
    summary(out)


def summary(out):
    kinds = [case[0] for cases in out.values() for case in cases.values()]
    print(len(out), "templates:", {k: kinds.count(k) for k in sorted(set(kinds))})


def sources(folder):
    """The templates of a model: one, or several with names."""
    for file in ("chat_template.jinja", "tokenizer_config.json"):
        path = os.path.join(folder, file)
        if not os.path.exists(path):
            continue
        if file.endswith(".jinja"):
            with open(path, encoding="utf8") as f:
                return {"": f.read()}
        template = load(path).get("chat_template")
        if isinstance(template, str):
            return {"": template}
        if isinstance(template, list):
            return {t["name"]: t["template"] for t in template}
    return {}


def variables(source):
    """The variables that the template reads and does not define."""
    return sorted(jinja2.meta.find_undeclared_variables(environment().parse(source)))


def in_parts(source):
    """Whether the template loops over the parts of a message's content, as vLLM's detection sees it."""
    nodes = jinja2.nodes
    ast = environment().parse(source)

    def core(node):
        while True:
            if isinstance(node, (nodes.Filter, nodes.Test)):
                node = node.node
            elif isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice):
                node = node.node
            else:
                return node

    def named(node, names):
        return isinstance(node, nodes.Name) and node.name in names

    def content(node, names):
        if isinstance(node, nodes.Getattr):
            return named(node.node, names) and node.attr == "content"
        if isinstance(node, nodes.Getitem):
            return named(node.node, names) and isinstance(node.arg, nodes.Const) and node.arg.value == "content"
        return False

    lists, before = {"messages"}, 0
    while len(lists) > before:
        before = len(lists)
        for a in ast.find_all(nodes.Assign):
            if named(core(a.node), lists):
                if not isinstance(a.target, nodes.Name):
                    return False
                lists.add(a.target.name)
    loops = list(ast.find_all(nodes.For))
    over = [loop.target for loop in loops if named(core(loop.iter), lists)]
    if not all(isinstance(target, nodes.Name) for target in over):
        return False
    messages = {target.name for target in over}
    for loop in loops:
        if content(core(loop.iter), messages) or named(loop.iter, {"content"}):
            return isinstance(loop.target, nodes.Name)
    return False


def real(folder, golden):
    os.makedirs(golden, exist_ok=True)
    everything = {}
    for path in sorted(glob.glob(os.path.join(folder, "*"))):
        for name, source in sources(path).items():
            title = os.path.basename(path) + ("." + name if name else "")
            everything[title] = render_all(source)
            golden_of = {"source": source, "variables": variables(source), "parts": in_parts(source)}
            dump(os.path.join(golden, title + ".json"), {**golden_of, "cases": everything[title]})
    summary(everything)


if __name__ == "__main__":
    {"snippets": snippets, "templates": templates, "real": real}[sys.argv[1]](*sys.argv[2:])
