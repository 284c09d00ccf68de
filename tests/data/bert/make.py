"""Makes bert.gguf: a tiny random BERT cross-encoder as GGUF, and what it gives, computed here with numpy in double precision.

    python make.py          needs numpy and gguf

Written from the papers' equations (arXiv 1810.04805; GELU with erf), not from Smelt's code. `ref.npz`: `input_ids` and
`segments` of a pair of texts, `states` of its tokens behind the last layer, `scores` of the one label; `second_*` the
same of a single text.
"""

import math
from pathlib import Path

import gguf
import numpy as np

HIDDEN, HEADS, FFN, LAYERS, CONTEXT, EPS = 48, 4, 96, 3, 64, 1e-12
random = np.random.default_rng(7)
weights = {}


def weight(name, *shape, mean=0.0, scale=None):
    """Values that half precision holds exactly."""
    scale = scale or 1.5 / math.sqrt(shape[-1])
    values = (mean + scale * random.standard_normal(shape)).astype(np.float16)
    weights[name] = values.astype(np.float64)


letters = "abcdefghijklmnopqrstuvwxyz0123456789"
words = ["the", "what", "is", "a", "fish", "fire", "cat", "dog", "sea", "lives", "in", "swims", "burns", "who"]
tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "\u2581.", "\u2581?", "\u2581,"]
tokens += [f"\u2581{c}" for c in letters] + list(letters) + [f"\u2581{w}" for w in words if len(w) > 1] + ["s", "ing"]
tokens = list(dict.fromkeys(tokens))
kinds = [3 if t.startswith("[") else 1 for t in tokens]

weight("token_embd.weight", len(tokens), HIDDEN, scale=1.0)
weight("position_embd.weight", CONTEXT, HIDDEN, scale=0.5)
weight("token_types.weight", 2, HIDDEN, scale=0.5)
norms = ["token_embd_norm"]
for i in range(LAYERS):
    for name, n_out, n_in in [
        ("attn_q", HIDDEN, HIDDEN),
        ("attn_k", HIDDEN, HIDDEN),
        ("attn_v", HIDDEN, HIDDEN),
        ("attn_output", HIDDEN, HIDDEN),
        ("ffn_up", FFN, HIDDEN),
        ("ffn_down", HIDDEN, FFN),
    ]:
        weight(f"blk.{i}.{name}.weight", n_out, n_in)
        weight(f"blk.{i}.{name}.bias", n_out, scale=0.3)
    norms += [f"blk.{i}.attn_output_norm", f"blk.{i}.layer_output_norm"]
for name in norms:
    weight(f"{name}.weight", HIDDEN, mean=1.0, scale=0.2)
    weight(f"{name}.bias", HIDDEN, scale=0.2)
weight("cls.weight", HIDDEN, HIDDEN)
weight("cls.bias", HIDDEN, scale=0.3)
weight("cls.output.weight", 1, HIDDEN)
weight("cls.output.bias", 1, scale=0.3)

erf = np.vectorize(math.erf)


def linear(name, x):
    return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def norm(name, x):
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + EPS) * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def states(ids, segments):
    x = weights["token_embd.weight"][ids] + weights["token_types.weight"][segments]
    x = norm("token_embd_norm", x + weights["position_embd.weight"][: len(ids)])
    for i in range(LAYERS):
        q, k, v = (
            linear(f"blk.{i}.attn_{part}", x).reshape(len(ids), HEADS, -1).transpose(1, 0, 2) for part in "qkv"
        )
        scores = q @ k.transpose(0, 2, 1) / math.sqrt(HIDDEN // HEADS)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (scores / scores.sum(-1, keepdims=True)) @ v
        mixed = linear(f"blk.{i}.attn_output", mixed.transpose(1, 0, 2).reshape(len(ids), HIDDEN))
        x = norm(f"blk.{i}.attn_output_norm", x + mixed)
        up = linear(f"blk.{i}.ffn_up", x)
        up = up * 0.5 * (1 + erf(up / math.sqrt(2)))
        x = norm(f"blk.{i}.layer_output_norm", x + linear(f"blk.{i}.ffn_down", up))
    return x


def label(x):
    return linear("cls.output", np.tanh(linear("cls", x[0])))


def ids(text):
    return [tokens.index(f"\u2581{word}") for word in text.split()]


here = Path(__file__).parent
writer = gguf.GGUFWriter(here / "bert-f16.gguf", "bert")
writer.add_name("tiny random BERT")
writer.add_context_length(CONTEXT)
writer.add_embedding_length(HIDDEN)
writer.add_feed_forward_length(FFN)
writer.add_block_count(LAYERS)
writer.add_head_count(HEADS)
writer.add_layer_norm_eps(EPS)
writer.add_causal_attention(False)
writer.add_pooling_type(gguf.PoolingType.RANK)
writer.add_token_type_count(2)
writer.add_tokenizer_model("bert")
writer.add_tokenizer_pre("default")
writer.add_token_list(tokens)
writer.add_token_types(kinds)
for role, text in [("bos", "[CLS]"), ("unk", "[UNK]"), ("sep", "[SEP]"), ("pad", "[PAD]"), ("mask", "[MASK]")]:
    getattr(writer, f"add_{role}_token_id")(tokens.index(text))
for name, values in weights.items():
    writer.add_tensor(name, values.astype(np.float16 if values.ndim == 2 else np.float32))
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()

cls, sep = tokens.index("[CLS]"), tokens.index("[SEP]")
query, document = ids("what lives in the sea ?"), ids("a fish swims in the sea , a cat is a cat .")
pair = [cls, *query, sep, *document, sep]
kinds = [0] * (len(query) + 2) + [1] * (len(document) + 1)
single = [cls, *document, sep]
np.savez_compressed(
    here / "ref.npz",
    input_ids=np.array(pair, np.int32),
    segments=np.array(kinds, np.int32),
    states=states(pair, kinds).astype(np.float32),
    scores=label(states(pair, kinds)).astype(np.float32),
    second_input_ids=np.array(single, np.int32),
    second_states=states(single, [0] * len(single)).astype(np.float32),
    second_scores=label(states(single, [0] * len(single))).astype(np.float32),
)
