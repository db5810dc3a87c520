"""Print the throughput of upstream, fastokens and this package side by side, in MB/s of one core.

usage: python speed.py VOCABULARIES [PROMPTS.jsonl.gz]
       VOCABULARIES holds NAME/tokenizer.json; PROMPTS has one JSON object with a text in "input" in a line
needs: the tokenizers package (0.23.3), the fastokens package if it is to be compared, go

All run on the same texts in the same minutes, each the best of several runs. Cold means that this package remembers nothing; the
others keep what they keep. The rows "new" and "again" are all prompts one after the other: first met, and a second time.
"""
import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

from tokenizers import Tokenizer  # noqa: E402

try:
    import fastokens
except ImportError:
    fastokens = None

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SIZES = [4 << 10, 16 << 10, 128 << 10]


def code():
    paths = sorted(p for p in os.listdir(PACKAGE) if p.endswith(".go") and p != "tables.go")
    return "".join(open(os.path.join(PACKAGE, p), encoding="utf-8").read() for p in paths)


def prompts(path):
    return [json.loads(line)["input"] for line in gzip.open(path, "rt", encoding="utf-8") if line.strip()]


def cut(data, size):
    """The first bytes of a text, ending with a whole character."""
    return data[:size].decode("utf-8", "ignore")


def rate(encode, text):
    best, until = 1e9, time.perf_counter() + 0.5
    while time.perf_counter() < until:
        start = time.perf_counter()
        encode(text)
        best = min(best, time.perf_counter() - start)
    return len(text.encode()) / best / 1e6


def stream(encode, rows):
    start = time.perf_counter()
    for row in rows:
        encode(row)
    return sum(len(row.encode()) for row in rows) / (time.perf_counter() - start) / 1e6


def ours(vocabularies, texts, prompts):
    env = dict(os.environ, TOKENIZERS=os.path.abspath(vocabularies), SPEED_TEXTS=texts, SPEED_STREAM=prompts, GOMAXPROCS="1")
    out = subprocess.run(["go", "test", "-run", "^$", "-bench", "^Benchmark(Append|AppendCold|Stream)$", "-benchtime", "300ms", "-count", "2", "."],
                         cwd=PACKAGE, env=env, check=True, capture_output=True, text=True).stdout
    best = {}
    for cold, name, kind, size, mb in re.findall(r"^BenchmarkAppend(Cold)?/(\S+?)/(\S+?)/(\d+)K\S*\s.*?([\d.]+) MB/s", out, re.M):
        key = (name, kind, int(size) << 10, bool(cold))
        best[key] = max(best.get(key, 0), float(mb))
    for name, kind, mb in re.findall(r"^BenchmarkStream/(\S+?)/(new|again)\S*\s.*?([\d.]+) MB/s", out, re.M):
        best[name, kind] = max(best.get((name, kind), 0), float(mb))
    return best


def main():
    texts, rows = {"code": code().encode()}, []
    if len(sys.argv) > 2:
        rows = prompts(sys.argv[2])
        texts["prompt"] = max(rows, key=len).encode()
    with tempfile.TemporaryDirectory() as folder:
        for kind, data in texts.items():
            with open(os.path.join(folder, kind + ".txt"), "wb") as out:
                out.write(data)
        go = ours(sys.argv[1], folder, os.path.abspath(sys.argv[2]) if len(sys.argv) > 2 else "")
    print("%-14s %-7s %5s %9s %10s %9s %9s %7s" % ("vocabulary", "text", "size", "upstream", "fastokens", "attache", "cold", "ratio"))
    for name in sorted(os.listdir(sys.argv[1])):
        path = os.path.join(sys.argv[1], name, "tokenizer.json")
        up, fast = Tokenizer.from_file(path), None
        if fastokens:
            try:
                fast = fastokens.Tokenizer.from_file(path)
            except Exception as e:  # it refuses what it does not know
                print(name, "fastokens:", e)
        def encode_up(text):
            return up.encode(text, add_special_tokens=False)

        def encode_fast(text):
            return fast.encode(text, add_special_tokens=False)

        if rows:
            a = stream(encode_up, rows[::10])  # it is slow, and has nothing to remember
            for kind in ("new", "again"):
                b = stream(encode_fast, rows) if fast else float("nan")
                c = go[name, kind]
                print("%-14s %-7s %5s %9.1f %10.1f %9.1f %9s %6.0fx" % (name, kind, "all", a, b, c, "", c / a))
        for kind, data in texts.items():
            for size in SIZES:
                if len(data) < size:
                    continue
                text = cut(data, size)
                a = rate(encode_up, text)
                b = rate(encode_fast, text) if fast else float("nan")
                c, cold = go[name, kind, size, False], go[name, kind, size, True]
                print("%-14s %-7s %4dK %9.1f %10.1f %9.1f %9.1f %6.0fx" % (name, kind, size >> 10, a, b, c, cold, c / a))


main()
