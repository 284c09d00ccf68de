"""Makes nomic-bert-f16.gguf: a tiny random Nomic BERT as GGUF, and what transformers gives for it, in double precision.

    python make.py          needs torch, transformers, numpy and gguf; made with transformers 5.24.0

Tensors have the names that llama.cpp's converter gives those of nomic-embed-text; q, k and v lie in one. The vocabulary is
`../bert`'s. `ref.npz`: `input_ids` and `segments` of a pair of texts, `states` of its tokens behind the last layer;
`second_*` the same of a single text.
"""

from pathlib import Path

import gguf
import numpy as np
import torch
from transformers import NomicBertConfig, NomicBertModel

HERE = Path(__file__).parent
HIDDEN, HEADS, FFN, LAYERS, CONTEXT, THETA = 48, 4, 80, 3, 64, 1000.0

vocabulary = {}
for name, field in gguf.GGUFReader(HERE.parent / "bert/bert-f16.gguf").fields.items():
    if name.startswith("tokenizer."):
        vocabulary[name] = field.contents()
tokens = vocabulary["tokenizer.ggml.tokens"]

config = NomicBertConfig(
    vocab_size=len(tokens),
    hidden_size=HIDDEN,
    num_hidden_layers=LAYERS,
    num_attention_heads=HEADS,
    intermediate_size=FFN,
    max_position_embeddings=CONTEXT,
    rope_parameters={"rope_type": "default", "rope_theta": THETA},
    attn_implementation="eager",
)
model = NomicBertModel(config).eval()
random = torch.Generator().manual_seed(11)
with torch.no_grad():
    for name, weight in model.named_parameters():
        is_norm = "norm" in name.lower()
        scale = 0.2 if is_norm else 0.7 if "embeddings" in name else 1.5 / weight.shape[-1] ** 0.5
        mean = 1.0 if is_norm and name.endswith("weight") else 0.0
        # Values that half precision holds exactly.
        weight.copy_((mean + scale * torch.randn(weight.shape, generator=random)).half())
model = model.double()


def states(ids, segments):
    with torch.no_grad():
        inputs = {"input_ids": torch.tensor([ids]), "token_type_ids": torch.tensor([segments])}
        return model(**inputs).last_hidden_state[0].float().numpy()


NAMES = {
    "embeddings.word_embeddings": "token_embd",
    "embeddings.token_type_embeddings": "token_types",
    "embeddings.LayerNorm": "token_embd_norm",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "attn_output_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "post_mlp_layernorm": "layer_output_norm",
}
weights = {name: values.float().numpy() for name, values in model.state_dict().items()}
tensors = {}
for layer in range(LAYERS):
    parts = [weights.pop(f"layers.{layer}.self_attn.{part}_proj.weight") for part in "qkv"]
    tensors[f"blk.{layer}.attn_qkv.weight"] = np.concatenate(parts)
for name, values in weights.items():
    stem, kind = name.rsplit(".", 1)
    layer = ""
    if stem.startswith("layers."):
        _, index, stem = stem.split(".", 2)
        layer = f"blk.{index}."
    tensors[f"{layer}{NAMES[stem]}.{kind}"] = values

writer = gguf.GGUFWriter(HERE / "nomic-bert-f16.gguf", "nomic-bert")
writer.add_name("tiny random Nomic BERT")
writer.add_context_length(CONTEXT)
writer.add_embedding_length(HIDDEN)
writer.add_feed_forward_length(FFN)
writer.add_block_count(LAYERS)
writer.add_head_count(HEADS)
writer.add_layer_norm_eps(config.layer_norm_eps)
writer.add_rope_freq_base(THETA)
writer.add_causal_attention(False)
writer.add_pooling_type(gguf.PoolingType.MEAN)
writer.add_token_type_count(2)
for name, value in vocabulary.items():
    add = {list: writer.add_array, str: writer.add_string, bool: writer.add_bool, int: writer.add_uint32}
    add[type(value)](name, value)
for name, values in tensors.items():
    is_half = values.ndim == 2 and name != "token_types.weight"
    writer.add_tensor(name, values.astype(np.float16 if is_half else np.float32))
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()


def ids(text):
    return [tokens.index(f"\u2581{word}") for word in text.split()]


cls, sep = tokens.index("[CLS]"), tokens.index("[SEP]")
query, document = ids("what lives in the sea ?"), ids("a fish swims in the sea , a cat is a cat .")
pair = [cls, *query, sep, *document, sep]
kinds = [0] * (len(query) + 2) + [1] * (len(document) + 1)
single = [cls, *document, sep]
np.savez_compressed(
    HERE / "ref.npz",
    input_ids=np.array(pair, np.int32),
    segments=np.array(kinds, np.int32),
    states=states(pair, kinds),
    second_input_ids=np.array(single, np.int32),
    second_states=states(single, [0] * len(single)),
)
