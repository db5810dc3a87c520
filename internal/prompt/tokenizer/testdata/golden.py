"""Write golden/NAME.jsonl.gz: what upstream makes of a few hundred texts, for each variant of the small vocabularies.

usage: python golden.py
needs: the tokenizers package (0.23.3), the folders that train.py makes

golden/texts.jsonl.gz holds the texts. The first line of every other file tells how its tokenizer.json is made, {"base": folder,
"set": {top-level key or "model.key": value}}, and what comes out with the post-processor for the first texts. A value
{"strings": true} for model.merges means the merges of the base as strings, "bytes" for model.vocab that of the base with a
token for every byte. Then follow the ids of each text, or null where they are those of the base as it is.
"""
import gzip
import json
import os
import random
import unicodedata

from tokenizers import Tokenizer

from oracle import CODE, PIECES, PROSE
from train import HERE, QWEN

CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
TAIL = r"\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
HAN_UPPER, HAN_LOWER = UPPER[:-1] + r"&&[^\p{Han}]]", LOWER[:-1] + r"&&[^\p{Han}]]"
LEAD = r"[^\r\n\p{L}\p{N}]?"
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"

REGEXES = {
    "llama3": CONTRACTIONS + "|" + LEAD + r"\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + TAIL,
    "cl100k": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
    "qwen": QWEN,
    "qwen3_5": CONTRACTIONS + "|" + LEAD + r"[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + TAIL,
    "o200k": LEAD + UPPER + "*" + LOWER + "+" + CONTRACTIONS + "?|" + LEAD + UPPER + "+" + LOWER + "*" + CONTRACTIONS
             + r"?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + TAIL,
    "tekken": LEAD + UPPER + "*" + LOWER + "+|" + LEAD + UPPER + "+" + LOWER + r"*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + TAIL,
    "kimi": r"[\p{Han}]+|" + LEAD + HAN_UPPER + "*" + HAN_LOWER + "+" + CONTRACTIONS + "?|" + LEAD + HAN_UPPER + "+" + HAN_LOWER
            + "*" + CONTRACTIONS + r"?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + TAIL,
    "gpt2_split": r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "digit_runs": r"\p{N}+",
    "unknown": r"[A-Za-z]+(?=[^A-Za-z]|$)|\d{2}|[^\sA-Za-z\d]+\s?|\s+",
    "unknown_lines": r"(?<=\n)[ \t]+|\b\w+\b",
}


def regex(pattern, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": invert}


def string(text, behavior):
    return {"type": "Split", "pattern": {"String": text}, "behavior": behavior, "invert": False}


def byte_level(prefix=False, use_regex=False):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": use_regex}


def stages(*parts):
    return {"type": "Sequence", "pretokenizers": list(parts)}


def metaspace(scheme, split=True):
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split}


def added(content, **flags):
    out = {"id": 0, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    out.update(flags)
    return out


def template(single, **ids):
    pieces = [{"Sequence": {"id": "A", "type_id": 0}} if p == "A" else {"SpecialToken": {"id": p, "type_id": 0}} for p in single]
    return {"type": "TemplateProcessing", "single": pieces, "pair": pieces + [{"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {k: {"id": k, "ids": v, "tokens": [k] * len(v)} for k, v in ids.items()}}


DEEPSEEK = stages(
    regex(r"\p{N}{1,3}"), regex("[一-龥぀-ゟ゠-ヿ]+"),
    regex("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*"
          "|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"), byte_level())

FLAGS = [
    added("<|endoftext|>", special=True), added("<l>", lstrip=True), added("<r>", rstrip=True, special=True),
    added("<lr>", lstrip=True, rstrip=True), added("word", single_word=True), added("wörd", single_word=True, lstrip=True),
    added("Ångström", normalized=True), added("norm", normalized=True, rstrip=True), added("one", normalized=True, single_word=True),
    added("<l>long"), added("the", normalized=True, lstrip=True, rstrip=True, single_word=True), added(" "*3, normalized=False),
]


def variants():
    yield "small", "small", {}
    for name, pattern in REGEXES.items():
        yield name, "small", {"pre_tokenizer": stages(regex(pattern), byte_level())}
    yield "llama3_whole", "small", {
        "pre_tokenizer": stages(regex(REGEXES["llama3"]), byte_level()), "normalizer": None, "model.ignore_merges": True,
        "post_processor": {"type": "Sequence", "processors": [
            byte_level(), template(["<|im_start|>", "A"], **{"<|im_start|>": [1501]})]}}
    yield "deepseek", "small", {"pre_tokenizer": DEEPSEEK, "normalizer": {"type": "Sequence", "normalizers": []}}
    yield "merge_strings", "small", {"model.merges": {"strings": True}}
    yield "gpt2", "small", {"pre_tokenizer": byte_level(use_regex=True), "normalizer": None}
    yield "gpt2_prefix", "small", {"pre_tokenizer": byte_level(prefix=True, use_regex=True)}
    yield "starcoder", "small", {"pre_tokenizer": stages(
        {"type": "Digits", "individual_digits": True}, byte_level(use_regex=True)), "normalizer": None}
    yield "digits", "small", {"pre_tokenizer": stages({"type": "Digits", "individual_digits": False}, byte_level())}
    yield "unsplit", "small", {"pre_tokenizer": byte_level(), "normalizer": {"type": "NFD"}}
    for behavior in ("Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        yield "split_" + behavior.lower(), "small", {"pre_tokenizer": stages(regex(r"\s|[aeiou]", behavior), byte_level())}
    yield "split_inverted", "small", {"pre_tokenizer": stages(regex(r"[a-z]+", "Isolated", True), byte_level())}
    yield "bloom", "small", {"pre_tokenizer": stages(regex(BLOOM), byte_level()), "normalizer": None}
    for form in ("NFKC", "NFKD", "Lowercase"):
        yield form.lower(), "small", {"normalizer": {"type": form}}
    yield "strip", "small", {"normalizer": {"type": "Sequence", "normalizers": [
        {"type": "Strip", "strip_left": True, "strip_right": True}, {"type": "Lowercase"},
        {"type": "Replace", "pattern": {"String": "a"}, "content": "bb"}]}}
    for name, normalizer in (("flags", {"type": "NFC"}), ("flags_nfd", {"type": "NFD"}), ("flags_lower", {"type": "Lowercase"})):
        yield name, "small", {"added_tokens": FLAGS, "normalizer": normalizer}
    yield "roberta", "small", {"post_processor": {"type": "RobertaProcessing", "sep": ["<|im_end|>", 1502],
                                                   "cls": ["<|im_start|>", 1501], "trim_offsets": True, "add_prefix_space": False}}
    yield "template_both", "small", {"post_processor": template(
        ["x", "A", "y", "y"], x=[1501], y=[1502, 1500])}
    yield "pieces", "pieces", {}
    yield "gemma", "pieces", {"normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
                              "pre_tokenizer": string(" ", "MergedWithPrevious")}
    yield "pieces_strings", "pieces", {"pre_tokenizer": string("▁", "MergedWithNext")}
    yield "pieces_isolated", "pieces", {"pre_tokenizer": string("▁", "Isolated")}
    yield "pieces_no_fallback", "pieces", {"model.byte_fallback": False}
    yield "pieces_no_fuse", "pieces", {"model.byte_fallback": False, "model.fuse_unk": False}
    yield "pieces_drop", "pieces", {"model.byte_fallback": False, "model.unk_token": None}
    for scheme in ("always", "first", "never"):
        yield "metaspace_" + scheme, "pieces", {"normalizer": None, "pre_tokenizer": metaspace(scheme)}
    yield "metaspace_whole", "pieces", {"normalizer": None, "pre_tokenizer": metaspace("first", False)}
    yield "unigram", "unigram", {}
    yield "unigram_whole", "unigram", {"pre_tokenizer": metaspace("never", False), "normalizer": {"type": "NFC"}}
    yield "unigram_bytes", "unigram", {"model.byte_fallback": True, "model.vocab": "bytes"}


def texts():
    rng = random.Random(7)
    yield from ("", " ", "\n", "x", "<|im_start|>", "  <|im_end|>\n")
    for s in list(PROSE.values()) + CODE:
        yield s
    for s in list(PROSE.values())[:12]:
        yield unicodedata.normalize("NFD", s)
        yield s.upper()
    for p in PIECES:
        yield "a%s %sb%s%s1\n%s'%s" % (p, p, p, p, p, p)
    flags = [a["content"] for a in FLAGS] + ["NORM", "A\u030angstro\u0308m", "WORD", " ", "  ", "\n", "_", "a", ".", "é", "\u0301", "<", "<l>lon"]
    for _ in range(150):
        yield "".join(rng.choice(flags) for _ in range(rng.randint(1, 9)))
    for _ in range(100):
        yield "".join(rng.choice(PIECES) for _ in range(rng.randint(1, 12)))
    for n in (97, 300):
        yield "".join(rng.choices("abcdefghij", k=n))
        yield "ab" * n + " " * n + "\n" * n + "1" * n + "é" * n
    yield "e" + "\u0301" * 40 + "\u0323" * 40


def spliced(base, changes):
    with open(os.path.join(HERE, base, "tokenizer.json"), encoding="utf-8") as f:
        file = json.load(f)
    for key, value in changes.items():
        into = file
        if key.startswith("model."):
            into, key = file["model"], key.removeprefix("model.")
        if value == {"strings": True}:
            value = [" ".join(m) for m in file["model"]["merges"]]
        elif value == "bytes":
            value = file["model"]["vocab"] + [["<0x%02X>" % b, -20.0] for b in range(256)]
        into[key] = value
    return Tokenizer.from_str(json.dumps(file))


def write(name, lines):
    with open(os.path.join(HERE, "golden", name + ".jsonl.gz"), "wb") as f:
        with gzip.GzipFile(fileobj=f, mode="wb", compresslevel=9, mtime=0, filename="") as out:
            for line in lines:
                out.write((json.dumps(line, separators=(",", ":")) + "\n").encode())


def main():
    os.makedirs(os.path.join(HERE, "golden"), exist_ok=True)
    rows = list(texts())
    write("texts", rows)
    of_base = {}
    for name, base, changes in variants():
        tok = spliced(base, changes)
        ids = [tok.encode(text, add_special_tokens=False).ids for text in rows]
        special = [tok.encode(text).ids for text in rows[:5]]
        same = of_base.setdefault(base, [] if name == base else None)
        write(name, [{"base": base, "set": changes, "special": special}] +
              [None if same and i == s else i for i, s in zip(ids, same or ids)])
        if name == base:
            of_base[base] = ids


if __name__ == "__main__":
    main()
