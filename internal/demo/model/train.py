"""Train the demo's small vocabulary on the documents and the code of this repository.

usage: python internal/demo/model/train.py, in the root of the repository
needs: the tokenizers package (0.23.3)

It is a byte-level BPE in the form of Qwen's, of 2,000 tokens. The words of which simulated conversations are made become
one token each.
"""
import glob
import json
import os
import re

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
           r"\s*[\r\n]+|\s+(?!\S)|\s+")
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
PLAIN = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]


def texts():
    for path in sorted(glob.glob("*.md") + glob.glob("docs/*.md") + glob.glob("scoring/*.go") + glob.glob("indexer/*.go")):
        yield open(path, encoding="utf-8").read()
    source = open("internal/sim/tokens.go", encoding="utf-8").read()
    words = "".join(re.findall(r'"((?:[a-z]{3} )+)"', source))
    assert len(words.split()) == 64, words
    for word in words.split():
        yield (" " + word) * 500


def main():
    tok = Tokenizer(models.BPE())
    tok.normalizer = normalizers.NFC()
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PATTERN), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.post_processor = processors.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    tok.decoder = decoders.ByteLevel()
    tok.train_from_iterator(texts(), trainers.BpeTrainer(
        vocab_size=2000 - len(SPECIAL + PLAIN), show_progress=False, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    tok.add_special_tokens(SPECIAL)
    tok.add_tokens([AddedToken(s, normalized=False) for s in PLAIN])
    with open(os.path.join(HERE, "tokenizer.json"), "w", encoding="utf-8") as out:
        json.dump(json.loads(tok.to_str()), out, ensure_ascii=False, separators=(",", ":"))
        out.write("\n")


main()
