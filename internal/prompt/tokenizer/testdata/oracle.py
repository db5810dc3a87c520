"""Write what the upstream tokenizers library makes of many texts, one golden file per vocabulary.

usage: python oracle.py VOCABULARIES OUT [PROMPTS.jsonl.gz]
       VOCABULARIES holds NAME/tokenizer.json, OUT receives NAME.jsonl.gz: one JSON array [text, ids] in a line
       PROMPTS has one JSON object with a text in "input" in a line
needs: the tokenizers package (0.23.3)
"""
import gzip
import json
import os
import random
import sys
import unicodedata

from tokenizers import Tokenizer

PIECES = [
    " ", "  ", "   ", "\t", "\n", "\r", "\r\n", "\n\n", "\u00a0", "\u0085", "\u2028", "\u2029", "\u3000", "\x00", "\x1f", "\x0b", "\ufeff",
    "a", "B", "hello", "World", "naïve", "e\u0301", "\u0301", "\u0358\u1abf", "\u20d7\u08d2", "\u0345", "\u0f71\u0f72", "ﬁ", "Å", "Ω",
    "日本", "語", "ひらがな", "カタカナ", "漢字かな交じり", "한국어", "\u1112\u1161\u11ab", "각\u11a8", "العربية", "עִבְרִית", "हिन्दी", "ไทย", "தமிழ்",
    "'s", "'S", "'ſ", "'re", "'RE", "'ve", "'LL", "'d", "'m", "'T", "'", "’s", "''", "'sure", "1", "12", "345", "67890", "٣٤٥", "½", "Ⅷ", "०१२", "²",
    ".", "...", "!!!", "???", "(", ")", "{", "}", "=>", "!=", "//", "/", "\\n", "€", "→", "😀", "👨‍👩‍👧", "🇩🇪", "\u200d", "\u200b", "\u00ad",
    "_", "-", "#", "$", "x_y", "func main()", "camelCase", "HTTPServer", "ABCdef", "ǅ", "ʰ", "ª", "ß", "İ", "Σς", "\U00010d40", "\U0001e900",
    "<|im_start|>", "<|im_end|>", "<|eot_id|>", "<|endoftext|>", "<|begin_of_text|>", "<think>", "</think>", "<|", "|>", "<", "<<|im_end|>",
    "<｜User｜>", "<｜begin▁of▁sentence｜>", "<｜", "▁", "<0x0A>", "Ġ",
]

PROSE = {
    "en": "The quick brown fox jumps over the lazy dog. It wasn't Bob's; they'll say we've done 1,234.56 things in 2024!",
    "de": "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich. Straße, Übermut, ÄÖÜ.",
    "fr": "Portez ce vieux whisky au juge blond qui fume ; l'été, ça brûle… « naïveté » où ?",
    "es": "El pingüino Wenceslao hizo kilómetros bajo exhaustiva lluvia y frío, ¿añoraba a su querido cachorro?",
    "pl": "Pchnąć w tę łódź jeża lub ośm skrzyń fig. Zażółć gęślą jaźń.",
    "vi": "Tiếng Việt có dấu: Trăm năm trong cõi người ta, chữ tài chữ mệnh khéo là ghét nhau.",
    "tr": "Pijamalı hasta yağız şoföre çabucak güvendi. İstanbul'da ılık.",
    "ru": "Съешь же ещё этих мягких французских булок, да выпей чаю. Ёлка, йод.",
    "uk": "Жебракують філософи при ґанку церкви в Гадячі, ще й шатро їхнє п'яне знаємо.",
    "el": "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία. Τάχιστη αλώπηξ βαφής ψημένη γη.",
    "he": "דג סקרן שט בים מאוכזב ולפתע מצא חברה. שָׁלוֹם עוֹלָם",
    "ar": "نص حكيم له سر قاطع وذو شأن عظيم مكتوب على ثوب أخضر ومغلف بجلد أزرق. اَلْعَرَبِيَّةُ ١٢٣",
    "fa": "بر اساس این متن، می‌خواهیم نیم‌فاصله را بیازماییم ۴۵۶.",
    "hi": "ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण का सर्वनाश करने वाले विष्णुवतार भगवान श्रीराम। १२३",
    "bn": "আমি বাংলায় গান গাই, আমি বাংলার গান গাই। ক্ষ্ম্য",
    "ta": "யாமறிந்த மொழிகளிலே தமிழ்மொழி போல் இனிதாவது எங்கும் காணோம்",
    "te": "తెలుగు భాష అందమైనది; క్షేత్రం శ్రీ",
    "th": "เป็นมนุษย์สุดประเสริฐเลิศคุณค่า กว่าบรรดาฝูงสัตว์เดรัจฉาน ๑๒๓",
    "km": "ខ្ញុំស្រឡាញ់ភាសាខ្មែរ ១២៣",
    "my": "မြန်မာဘာသာစကား ၁၂၃",
    "ka": "ქართული ენა, ᲥᲐᲠᲗᲣᲚᲘ",
    "hy": "Հայերեն լեզու, և",
    "am": "አማርኛ ቋንቋ ፩፪፫።",
    "ko": "키스의 고유조건은 입술끼리 만나야 하고 특별한 기술은 필요치 않다. 123",
    "ja": "いろはにほへと ちりぬるを。東京タワーは333メートルです！ｶﾞｷﾞ",
    "zh": "我能吞下玻璃而不伤身体。2024年，价格：¥1,234。「引号」",
    "emoji": "👩🏽‍💻 ships 🚀🚀 on 🇫🇷 day ❤️‍🔥 #️⃣ 1️⃣",
}

CODE = [
    "def f(x):\n    return [i**2 for i in range(x) if i % 2 == 0]\n\n\n# done\n",
    "func (t *T) Get(k string) (v int, ok bool) {\n\tif v, ok = t.m[k]; !ok {\n\t\treturn 0, false\n\t}\n\treturn\n}\n",
    "<div class=\"a b\">\r\n  <p>x &amp; y</p>\r\n</div>\r\n",
    "SELECT a.id, COUNT(*) FROM tbl a WHERE a.x >= 10.5e-3 AND b IN ('u','v') -- c\n;",
    "{\"a\": [1, 2.50, null], \"k\\u00e9y\": \"line\\n\", \"n\": -1e10}",
    "if [ -z \"$X\" ]; then echo \"${Y:-z}\" >> /tmp/out_$(date +%Y%m%d).log 2>&1; fi",
    "#include <stdio.h>\nint main(void){printf(\"%d\\n\",0xFFu);return 0;}///***///\n\n\t\t  \n",
]


def texts(prompts):
    rng = random.Random(20)
    yield ""
    yield from PIECES
    for a in PIECES:
        for b in PIECES:
            yield a + b
    for s in list(PROSE.values()) + CODE:
        yield s
        yield unicodedata.normalize("NFD", s)
        yield s.upper()
        for _ in range(60):
            i, j = sorted(rng.randrange(len(s) + 1) for _ in range(2))
            yield s[i:j]
    for _ in range(40000):
        yield "".join(rng.choice(PIECES) for _ in range(rng.randint(1, 14)))
    every = list(PROSE.values()) + CODE + PIECES
    for _ in range(3000):
        yield "".join(rng.choice(every) for _ in range(rng.randint(2, 20)))
    points = [c for c in range(0x33480) if not 0xD800 <= c <= 0xDFFF]
    points += list(range(0xE0000, 0xE0200)) + list(range(0x33480, 0x110000, 997))
    for c in map(chr, points):
        yield "a%s %sb%s%s1\n%s'%s" % (c, c, c, c, c, c)
    marks = [chr(c) for c in points if unicodedata.category(chr(c)) in ("Mn", "Mc")]
    bases = "aeioucnAEOU가각ក가क\u0915\u1100\u1161\u11a8Ωω\u30ab " + "".join(chr(c) for c in range(0x1E00, 0x1F00, 7))
    for _ in range(30000):
        yield "".join(rng.choice(bases) + "".join(rng.choice(marks) for _ in range(rng.randint(0, 5))) for _ in range(4))
    common = [chr(c) for c in range(0x300, 0x370)]
    for _ in range(20000):
        yield "".join(rng.choice(bases) + "".join(rng.choice(common) for _ in range(rng.randint(0, 4))) for _ in range(4))
    for _ in range(10000):
        yield "".join(chr(rng.choice(points)) for _ in range(rng.randint(1, 12)))
    for n in (31, 100, 5000):
        yield "e" + "\u0301" * n + "\u0323" * n
        for s in ("a", " ", "\n", "!?", "<", "<|im_start|", "1", "\u0301", "A", "aA", "ªA", "日", "\x00", "\t "):
            yield s * n
    for n in (95, 96, 97, 98, 300, 3000, 20000):
        yield "".join(rng.choices("abcdefghij", k=n))
        yield "".join(rng.choices("aab", k=n))
        yield "".join(rng.choices("!?=-/*", k=n))
    for p in prompts:
        yield p


def main():
    prompts = []
    if len(sys.argv) > 3:
        prompts = [json.loads(line)["input"] for line in gzip.open(sys.argv[3], "rt", encoding="utf-8") if line.strip()]
    rows = list(texts(prompts))
    os.makedirs(sys.argv[2], exist_ok=True)
    for name in sorted(os.listdir(sys.argv[1])):
        path = os.path.join(sys.argv[1], name, "tokenizer.json")
        if not os.path.exists(path):
            continue
        tok = Tokenizer.from_file(path)
        with gzip.open(os.path.join(sys.argv[2], name + ".jsonl.gz"), "wt", compresslevel=1, encoding="utf-8") as out:
            for i in range(0, len(rows), 1000):
                part = rows[i:i + 1000]
                for text, got in zip(part, tok.encode_batch(part, add_special_tokens=False)):
                    out.write(json.dumps([text, got.ids], separators=(",", ":")) + "\n")
        print(name, len(rows), "texts")


if __name__ == "__main__":
    main()
