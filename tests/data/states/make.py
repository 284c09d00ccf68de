"""Makes ref.npz: the states that transformers gives for the tiny models, which embeddings are made of.

    python make.py TINY

TINY is the folder of the tiny models' Hugging Face checkpoints, NAME/model.safetensors; those that `../tiny` has are
asked, with the tokens of `../tiny/NAME/ref.npz`. Needs torch, transformers, safetensors and numpy from PyPI; made with
transformers 5.24.0, float32, eager attention.

States are those behind the last norm (`last_hidden_state`), of every token: `NAME.states` has the rows of
`NAME.positions`, `NAME.mean` the mean of all rows, `NAME.first` and `NAME.last` the first and the last. `llama-full` is the
llama with a mask that hides nothing, as of a decoder that was made an embedding model.
"""

import sys
from pathlib import Path

import numpy as np
import torch
import transformers

HERE = Path(__file__).parent
ROWS = 6


def states(folder, ids, full=False):
    model = transformers.AutoModel.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    tokens = torch.tensor(ids.astype(np.int64))[None]
    mask = torch.zeros(1, 1, len(ids), len(ids)) if full else None
    with torch.no_grad():
        return model(tokens, attention_mask=mask).last_hidden_state[0].double().numpy()


def arrays(name, rows):
    positions = np.linspace(0, len(rows) - 1, ROWS).astype(np.int32)
    parts = {"states": rows[positions], "mean": rows.mean(axis=0), "first": rows[0], "last": rows[-1]}
    made = {f"{name}.{part}": values.astype(np.float32) for part, values in parts.items()}
    return made | {f"{name}.positions": positions}


tiny, made = Path(sys.argv[1]), {}
for reference in sorted(HERE.parent.glob("tiny/*/ref.npz")):
    name = reference.parent.name
    ids = np.load(reference)["input_ids"]
    made |= arrays(name, states(tiny / name, ids))
    if name == "llama":
        made |= arrays("llama-full", states(tiny / name, ids, full=True))
np.savez_compressed(HERE / "ref.npz", **made)
print(f"transformers {transformers.__version__}, torch {torch.__version__}: {len(made)} arrays")
