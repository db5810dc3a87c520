"""Train the small vocabularies of the tests on our own documents, code and sample sentences.

usage: python train.py ROOT
       ROOT is the repository; small/, pieces/ and unigram/ beside this script receive a tokenizer.json each
needs: the tokenizers package (0.23.3)

What is trained depends on what the repository holds, so run golden.py after it and commit both together.
"""
import glob
import json
import os
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from oracle import CODE, PROSE

HERE = os.path.dirname(os.path.abspath(__file__))
QWEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
        r"\s*[\r\n]+|\s+(?!\S)|\s+")
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
PLAIN = ["<tool_call>", "</tool_call>", "<think>", "</think>"]


def corpus(root):
    paths = [p for pattern in ("*.md", "docs/*.md", "indexer/*.go", "scoring/*.go", "internal/prompt/tokenizer/*.go")
             for p in sorted(glob.glob(os.path.join(root, pattern))) if not p.endswith("tables.go")]
    return [open(p, encoding="utf-8").read() for p in paths] + (list(PROSE.values()) + CODE) * 4


def save(tok, name):
    os.makedirs(os.path.join(HERE, name), exist_ok=True)
    with open(os.path.join(HERE, name, "tokenizer.json"), "w", encoding="utf-8") as out:
        json.dump(json.loads(tok.to_str()), out, ensure_ascii=False, separators=(",", ":"))
        out.write("\n")


def byte_level(texts):
    tok = Tokenizer(models.BPE())
    tok.normalizer = normalizers.NFC()
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(QWEN), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.post_processor = processors.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    tok.decoder = decoders.ByteLevel()
    tok.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=1500, show_progress=False, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    tok.add_special_tokens(SPECIAL)
    tok.add_tokens([AddedToken(s, normalized=False) for s in PLAIN])
    save(tok, "small")
    json_config = {
        "add_bos_token": False,
        "added_tokens_decoder": {str(tok.token_to_id(s)): {
            "content": s, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": s in SPECIAL,
        } for s in SPECIAL + PLAIN},
        "bos_token": None,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "tokenizer_class": "Qwen2Tokenizer",
    }
    with open(os.path.join(HERE, "small", "tokenizer_config.json"), "w", encoding="utf-8") as out:
        json.dump(json_config, out, indent=2)
        out.write("\n")


def pieces(texts):
    """In the manner of Llama 2: characters, with bytes for those that are no token."""
    tok = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tok.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tok.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    tok.decoder = decoders.Sequence([
        decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tok.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=1200, limit_alphabet=300, show_progress=False, initial_alphabet=["▁"],
        special_tokens=["<unk>", "<s>", "</s>"] + ["<0x%02X>" % b for b in range(256)]))
    tok.pre_tokenizer = None
    tok.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", tok.token_to_id("<s>"))])
    kept = json.loads(tok.to_str())
    kept["added_tokens"] = kept["added_tokens"][:3]
    save(Tokenizer.from_str(json.dumps(kept)), "pieces")


def unigram(texts):
    tok = Tokenizer(models.Unigram())
    tok.normalizer = normalizers.NFKC()
    tok.pre_tokenizer = pre_tokenizers.Metaspace()
    tok.decoder = decoders.Metaspace()
    tok.train_from_iterator([t[:4000] for t in texts], trainers.UnigramTrainer(
        vocab_size=1000, show_progress=False, unk_token="<unk>", special_tokens=["<pad>", "</s>", "<unk>"]))
    tok.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", tok.token_to_id("</s>"))])
    save(tok, "unigram")


if __name__ == "__main__":
    root = corpus(sys.argv[1])
    byte_level(root)
    pieces(root)
    unigram(root)
