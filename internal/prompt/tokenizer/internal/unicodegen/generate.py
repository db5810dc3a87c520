"""Write tables.go: the character classes and normal forms of the upstream tokenizers library.

usage: python generate.py > ../../tables.go
needs: the tokenizers package (0.23.3); nothing is downloaded

Go's own tables are of another Unicode version than upstream's, and upstream's regular expressions, normalizers and
standard library do not even agree with each other. So the tables are not made from a copy of the Unicode database: every
code point is shown to the library itself, and what it does with it is written down.
"""
import sys
import unicodedata

from tokenizers import AddedToken, Regex, Tokenizer, __version__, models, normalizers, pre_tokenizers

POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
HANGUL = range(0xAC00, 0xAC00 + 11172)


def matched(pattern):
    """The code points that a regular expression for one character matches."""
    text = "".join(map(chr, POINTS))
    split = pre_tokenizers.Split(Regex(pattern), "removed")
    rest = set()
    for _, (start, end) in split.pre_tokenize_str(text):
        rest.update(POINTS[start:end])
    return set(POINTS) - rest


def classes():
    bits = [r"[\p{Lu}\p{Lt}]", r"\p{Ll}", r"[\p{Lm}\p{Lo}]", r"\p{M}", r"\p{N}", r"[\p{P}\p{S}]", r"\s", r"[\r\n]"]
    out = dict.fromkeys(POINTS, 0)
    for bit, pattern in enumerate(bits):
        for point in matched(pattern):
            out[point] |= 1 << bit
    letters = matched(r"\p{L}")
    assert letters == {c for c in POINTS if out[c] & 7}
    return out


def word_characters():
    """What single_word takes for a part of a word: tried with an added token before each code point."""
    tok = Tokenizer(models.BPE(vocab={"?": 0}, merges=[], unk_token="?"))
    tok.add_tokens([AddedToken("<x>", single_word=True, normalized=False)])
    want = tok.token_to_id("<x>")
    return {c for c in POINTS if want not in tok.encode("<x>" + chr(c), add_special_tokens=False).ids}


def stripped():
    """What rstrip takes for white space."""
    tok = Tokenizer(models.BPE(vocab={"?": 0}, merges=[], unk_token="?"))
    tok.add_tokens([AddedToken("<x>", rstrip=True, normalized=False)])
    return {c for c in POINTS if len(tok.encode("<x>" + chr(c), add_special_tokens=False).ids) == 1}


def numeric():
    """What the Digits pre-tokenizer cuts off."""
    digits = pre_tokenizers.Digits(individual_digits=True)
    return {c for c in POINTS if len(digits.pre_tokenize_str("a" + chr(c) + "a")) == 3}


def combining(nfd):
    """Canonical combining classes, found by watching which marks change places.

    The numbers are those of Python's Unicode. Each is represented by a mark that upstream's older tables know as well.
    """
    low, high = "\u0334", "\u0301"  # of class 1 and 230

    def ordered(*marks):
        return nfd("a" + "".join(marks)) == "a" + "".join(marks)

    known = [chr(c) for c in POINTS if nfd(chr(c)) == chr(c) and not (ordered(chr(c), low) and ordered(high, chr(c)))]
    reps = {}
    for s in known:
        reps.setdefault(unicodedata.combining(s), s)
    assert reps.pop(0, None) is None
    reps = sorted(reps.items())
    for (_, a), (_, b) in zip(reps, reps[1:]):
        assert not ordered(b, a), (a, b)
    return {ord(s): max(k for k, r in reps if ordered(r, s)) for s in known}


def uvarint(n):
    out = bytearray()
    while n >= 0x80:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def runs(values):
    """Pairs of (length of the run, value) that cover all code points; unmentioned ones have the value 0."""
    out, start, now = bytearray(), 0, values.get(0, 0)
    for c in range(1, 0x110001):
        v = values.get(c, 0) if c < 0x110000 else None
        if v != now:
            out += uvarint(c - start) + bytes([now])
            start, now = c, v
    return bytes(out)


def mappings(table):
    """For each code point in order: the step from the one before, the count and the code points it becomes."""
    out, last = bytearray(), 0
    for c in sorted(table):
        out += uvarint(c - last) + bytes([len(table[c])]) + b"".join(uvarint(ord(r)) for r in table[c])
        last = c
    return bytes(out)


def quoted(data):
    line, lines = "", []
    for b in data:
        s = chr(b) if 0x20 <= b < 0x7F and b not in b'"\\' else "\\x%02x" % b
        if len(line) + len(s) > 128:
            lines.append(line)
            line = ""
        line += s
    lines.append(line)
    return " +\n\t".join('"%s"' % s for s in lines)


def main():
    cls = classes()
    nfc, nfd = normalizers.NFC().normalize_str, normalizers.NFD().normalize_str
    nfkd, lower = normalizers.NFKD().normalize_str, normalizers.Lowercase().normalize_str
    ccc = combining(nfd)
    canonical = {c: nfd(chr(c)) for c in POINTS if nfd(chr(c)) != chr(c) and c not in HANGUL}
    compatible = {c: nfkd(chr(c)) for c in POINTS if nfkd(chr(c)) != nfd(chr(c)) and c not in HANGUL}
    composed, second = {}, set()
    for c, parts in canonical.items():
        if len(parts) < 2 or nfc(parts) != chr(c):
            continue
        first = nfc(parts[:-1])
        if len(first) == 1 and nfc(first + parts[-1]) == chr(c):
            composed[c] = first + parts[-1]
            second.add(ord(parts[-1]))
    jamo = set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3))
    unsafe = {c for c in POINTS if c in ccc or c in second or c in jamo or nfc(chr(c)) != chr(c)}
    word, number, space = word_characters(), numeric(), stripped()
    white = {c for c in POINTS if cls[c] & 0x40}
    assert space == white, sorted(space ^ white)
    han = matched(r"\p{Han}")
    props = {c: (c in word) | (c in number) << 1 | (c in unsafe) << 2 | (c in han) << 3 for c in POINTS}
    w = sys.stdout.write
    w("// Code generated by internal/unicodegen/generate.py from tokenizers %s; DO NOT EDIT.\n\n" % __version__)
    w("package tokenizer\n")
    for name, doc, data in [
        ("classRuns", "the class of every code point: length of a run, class.", runs(cls)),
        ("traitRuns", "the traits of every code point: length of a run, traits.", runs(props)),
        ("combiningRuns", "the canonical combining classes: length of a run, class.", runs(ccc)),
        ("canonicalMaps", "the full canonical decompositions, without Hangul.", mappings(canonical)),
        ("compatibleMaps", "the full compatibility decompositions that differ from the canonical ones.", mappings(compatible)),
        ("composedMaps", "the primary composites, each with the two code points it is composed of.", mappings(composed)),
        ("lowerMaps", "the code points that lower case changes.", mappings({c: lower(chr(c)) for c in POINTS if lower(chr(c)) != chr(c)})),
    ]:
        w("\n// %s: %s\nconst %s = %s\n" % (name, doc, name, quoted(data)))
    print({k: len(v) for k, v in dict(ccc=ccc, canonical=canonical, compatible=compatible, composed=composed,
                                      unsafe=unsafe, word=word, number=number, white=white).items()}, file=sys.stderr)
    print("digits not \\p{N}", len(number ^ {c for c in POINTS if cls[c] & 0x10}), file=sys.stderr)


main()
