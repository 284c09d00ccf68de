"""Renders every template of llama.cpp's tree with Hugging Face's own code, for comparison.

    python make_refs.py LLAMA_CPP/models/templates

Writes refs.json.gz beside this file, from cases.json: for each template and case the text, or the message of
raise_exception, or that rendering fails. Needs transformers, jinja2 and numpy from PyPI; made with the versions that
refs.json.gz names.
"""

import datetime
import gzip
import json
import sys
from pathlib import Path

import jinja2
import transformers
from transformers.utils import chat_template_utils as hf

HERE = Path(__file__).parent


class FixedDate(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2025, 3, 9, 14, 5, 6)


def render(source, case):
    options = dict(case.get("options", {}))
    try:
        (text,), _ = hf.render_jinja_template(
            [hf._normalize_chat_messages(case["messages"])],
            chat_template=source,
            tools=case.get("tools"),
            documents=case.get("documents"),
            add_generation_prompt=case.get("add_generation_prompt", True),
            bos_token="<BOS>",
            eos_token="<EOS>",
            **options,
        )
        return {"text": text}
    except jinja2.TemplateSyntaxError as e:
        sys.exit(f"not valid for Jinja2: {e}")
    except jinja2.TemplateError as e:
        # raise_exception throws this very class; the others are its subclasses.
        return {"raised": str(e)} if type(e) is jinja2.TemplateError else {"failed": f"{type(e).__name__}: {e}"}
    except Exception as e:
        return {"failed": f"{type(e).__name__}: {e}"}


def main():
    hf.datetime = FixedDate
    cases = json.loads((HERE / "cases.json").read_text())
    templates = {}
    for path in sorted(Path(sys.argv[1]).glob("*.jinja")):
        source = path.read_text()
        templates[path.name] = {name: render(source, case) for name, case in cases.items()}
    for path in sorted((HERE / "language").glob("*.jinja")):
        source = path.read_text()
        templates["language/" + path.name] = {name: render(source, case) for name, case in cases.items()}
    refs = {
        "transformers": transformers.__version__,
        "jinja2": jinja2.__version__,
        "templates": templates,
    }
    text = json.dumps(refs, ensure_ascii=False, indent=0, sort_keys=True)
    (HERE / "refs.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    counts = [next(iter(r)) for t in templates.values() for r in t.values()]
    print({k: counts.count(k) for k in sorted(set(counts))}, len(templates))


main()
