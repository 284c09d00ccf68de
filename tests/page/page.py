"""The chat page in a headless Chromium: `python page.py http://OPEN http://KEYED KEY SCREENSHOTS`.

Each function is a case and gets a page of a fresh browser profile. Answers come from the model of the server, except where a
case needs a certain one: then it puts a stream in the place of the server's.
"""

import json
import os
import pathlib
import re
import shutil
import sys
import time

from playwright.sync_api import expect, sync_playwright

OPEN, KEYED, KEY = sys.argv[1:4]
SHOTS = pathlib.Path(sys.argv[4])
CHAT = "**/v1/chat/completions"
WIDE, NARROW = {"width": 1280, "height": 860}, {"width": 390, "height": 780}
expect.set_options(timeout=60_000)


def send(page, text):
    page.get_by_label("Message", exact=True).fill(text)
    page.keyboard.press("Enter")


def settled(page):
    """Waits until no answer is under way."""
    expect(page.get_by_role("button", name="Send", exact=True)).to_be_visible()


def answers(page):
    return page.get_by_role("article", name="Answer")


def shot(page, name):
    page.screenshot(path=SHOTS / f"{name}.png")


def limit(page, tokens=40, **chosen):
    """Sets the sampling as the dialog does: tests need no long answers."""
    chosen = {"max_tokens": tokens, "temperature": 0, **chosen}
    page.evaluate("chosen => localStorage.setItem('smelt.settings', JSON.stringify({chosen}))", chosen)


def stream(content="", reasoning="", pieces=7, end=True):
    """An answer as the server streams it, cut into pieces of `pieces` characters."""
    def chunk(delta=None, finish=None, **more):
        choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
        return "data: " + json.dumps({"choices": choices, **more}) + "\n\n"

    cut = lambda text: [text[at:at + pieces] for at in range(0, len(text), pieces)]
    body = chunk({"role": "assistant", "content": ""})
    body += "".join(chunk({"reasoning_content": piece}) for piece in cut(reasoning))
    body += "".join(chunk({"content": piece}) for piece in cut(content))
    if end:
        body += chunk({}, "stop") + chunk(usage={"completion_tokens": 1 + len(content) // 4}) + "data: [DONE]\n\n"
    return {"status": 200, "content_type": "text/event-stream", "body": body}


def reply(page, **answer):
    page.route(CHAT, lambda route: route.fulfill(**answer))


SHOW = """Here is a **short** tour of what an answer may hold, with `inline code` and a [link](https://example.org/a).

## Lists and tables

1. Mix flour and water
2. Wait:
   - an hour if it is warm
   - *two* if it is cold
3. Bake

| fish | water | largest, cm |
|:-----|:-----:|------------:|
| smelt | sea and rivers | 30 |
| char | `cold` lakes | 107 |

> A smelt is a small fish, and a way to win metal from ore.

```rust
/// The nth number of the sequence.
fn fibonacci(n: u32) -> u64 {
    let (mut a, mut b) = (0, 1);
    for _ in 0..n {
        (a, b) = (b, a + b); // never overflows below 94
    }
    println!("{}", a);
    a
}
```

- [x] read
- [ ] written
"""


def streams_stops_and_regenerates(page):
    page.goto(OPEN)
    expect(page.get_by_label("Model", exact=True)).to_have_value("model")
    limit(page, 400)
    shot(page, "welcome")
    page.reload()
    send(page, "Tell me a long story about a small fish that likes fire.")
    stop = page.get_by_role("button", name="Stop")
    expect(answers(page).locator(".body")).not_to_be_empty()
    expect(stop).to_be_visible()
    shot(page, "streaming")
    stop.click()
    settled(page)
    expect(answers(page)).to_contain_text("stopped")
    first = answers(page).locator(".body").inner_text()
    assert first
    limit(page, 24, seed=7, temperature=1)
    page.get_by_role("button", name="Regenerate").click()
    settled(page)
    expect(answers(page)).to_contain_text("2 / 2")
    expect(answers(page)).to_contain_text(re.compile(r"\d+ tokens · [\d.]+ tokens/s · first after [\d.]+ s"))
    page.get_by_role("button", name="Earlier answer").click()
    expect(answers(page).locator(".body")).to_have_text(first, use_inner_text=True)


def edits_and_keeps_history(page):
    page.goto(OPEN)
    limit(page, 12)
    page.reload()
    send(page, "What is ice?")
    settled(page)
    send(page, "And steam?")
    settled(page)
    expect(answers(page)).to_have_count(2)
    question = page.get_by_role("article", name="You").first
    question.hover()
    question.get_by_role("button", name="Edit").click()
    editor = page.get_by_label("Edit the message")
    expect(editor).to_have_value("What is ice?")
    editor.fill("What is snow?")
    shot(page, "editing")
    page.get_by_role("article").get_by_role("button", name="Send").click()
    settled(page)
    expect(answers(page)).to_have_count(1)
    answer = answers(page).locator(".body").inner_text()
    page.get_by_role("button", name="New chat").click()
    expect(answers(page)).to_have_count(0)
    send(page, "A second chat")
    settled(page)
    page.reload()
    history = page.get_by_role("navigation", name="History")
    expect(history.locator("button.open")).to_have_count(2)
    page.get_by_label("Search chats").fill("snow")
    expect(history.locator("button.open")).to_have_count(1)
    history.locator("button.open").click()
    expect(page.get_by_role("article", name="You")).to_contain_text("What is snow?")
    expect(answers(page).locator(".body")).to_have_text(answer, use_inner_text=True)
    page.get_by_label("Search chats").fill("")
    history.get_by_role("button", name="Rename “What is ice?”").click()
    page.get_by_label("Title").fill("Water")
    page.keyboard.press("Enter")
    expect(history).to_contain_text("Water")
    shot(page, "history")
    history.get_by_role("button", name="Delete “Water”").click()
    expect(history).not_to_contain_text("Water")
    page.get_by_role("button", name="Undo").click()
    expect(history).to_contain_text("Water")
    with page.expect_download() as download:
        page.get_by_role("button", name="Settings").click()
        page.get_by_role("button", name="Export chats").click()
    assert len(json.loads(pathlib.Path(download.value.path()).read_text())) == 2


def works_by_keyboard_only(page):
    page.goto(OPEN)
    page.keyboard.press("Control+,")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.type("You are a pirate.")
    for _ in range(6):
        page.keyboard.press("Tab")
    page.keyboard.type("20")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.keyboard.press("Control+/")
    page.keyboard.type("One")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("two")
    with page.expect_request(CHAT) as request:
        page.keyboard.press("Enter")
    sent = request.value.post_data_json
    assert sent["messages"] == [
        {"role": "system", "content": "You are a pirate."}, {"role": "user", "content": "One\ntwo"}], sent
    assert sent["max_tokens"] == 20 and "top_k" not in sent, sent
    settled(page)
    page.keyboard.press("ArrowUp")
    expect(page.get_by_label("Edit the message")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_label("Message", exact=True)).to_be_focused()
    limit(page, 2000)
    page.keyboard.type("Count to a thousand.")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Stop")).to_be_visible()
    page.keyboard.press("Escape")
    settled(page)
    # A round through everything that takes the focus: all of it has a name and shows that it is there.
    page.evaluate("document.activeElement.blur()")
    seen = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        name, ring = page.evaluate("""() => {
            const it = document.activeElement;
            const style = getComputedStyle(it);
            const edge = getComputedStyle(it.closest('form') ?? it);
            return [it.getAttribute('aria-label') || it.labels?.[0]?.textContent || it.textContent,
                    style.outlineStyle !== 'none' || edge.borderColor !== 'rgba(0, 0, 0, 0)'];
        }""")
        assert name.strip() and ring, (name, ring)
        seen.add(name.strip())
    assert {"New chat", "Model", "Settings", "Regenerate", "Skip to the message field"} <= seen, seen
    page.keyboard.press("Control+Shift+O")
    expect(page.get_by_role("article")).to_have_count(0)


def shows_markdown_in_both_themes(page):
    reply(page, **stream(SHOW, "They want to see *everything*.\n\nSo I show it.", pieces=9))
    page.goto(OPEN)
    send(page, "Show me what you can do")
    settled(page)
    body = answers(page).locator(".body")
    expect(body.locator("ol > li")).to_have_count(3)
    expect(body.locator("ol ul > li")).to_have_count(2)
    expect(body.locator("table tbody tr")).to_have_count(2)
    expect(body.locator("td").nth(2)).to_have_css("text-align", "right")
    expect(body.locator("blockquote")).to_contain_text("win metal")
    expect(body.locator("pre .tok-k").first).to_have_text("fn")
    expect(body.locator("input[type=checkbox]").first).to_be_checked()
    expect(body.locator("a")).to_have_attribute("rel", "noopener noreferrer")
    thoughts = answers(page).locator("details")
    expect(thoughts).to_contain_text("Thought for")
    assert not thoughts.evaluate("it => it.open")
    thoughts.locator("summary").click()
    expect(thoughts.locator("em")).to_have_text("everything")
    body.get_by_role("button", name="Copy", exact=True).click()
    expect(body.locator(".copy-code")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()").startswith("/// The nth number")
    for theme in ["light", "dark"]:
        page.get_by_role("button", name="Theme").click()
        expect(page.locator("html")).to_have_attribute("data-theme", theme)
        page.locator("#scroll").evaluate("it => it.scrollTo(0, 0)")
        shot(page, f"markdown-{theme}")
        assert_contrast(page)
        page.get_by_role("button", name="Settings").click()
        shot(page, f"settings-{theme}")
        assert_contrast(page)
        page.get_by_role("button", name="Done").click()
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.emulate_media(color_scheme="light")
    page.get_by_role("button", name="Theme").click()
    expect(page.locator("html")).not_to_have_attribute("data-theme", "dark")


def assert_contrast(page):
    """WCAG AA: visible text has 4.5 times the luminance of what is behind it, or the other way round."""
    bad = page.evaluate("""() => {
        const channels = (color) => {
            const c = document.createElement('canvas').getContext('2d');
            c.fillStyle = color; c.fillRect(0, 0, 1, 1);
            return c.getImageData(0, 0, 1, 1).data;
        };
        const light = (color) => {
            const [r, g, b] = [...channels(color)].map((v) => v / 255)
                .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
        };
        const behind = (node) => {
            for (; node; node = node.parentElement) {
                const color = getComputedStyle(node).backgroundColor;
                if (channels(color)[3] === 255) return color;
            }
            return 'white';
        };
        const bad = [];
        const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
        while (walk.nextNode()) {
            const node = walk.currentNode.parentElement;
            if (!walk.currentNode.data.trim() || !node.checkVisibility({opacityProperty: true})) continue;
            if (node.closest('.visually-hidden, .skip, option')) continue;
            const [a, b] = [light(getComputedStyle(node).color), light(behind(node))];
            const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
            if (ratio < 4.5) bad.push([walk.currentNode.data.trim().slice(0, 30), ratio.toFixed(2)]);
        }
        return bad;
    }""")
    assert not bad, bad


HOSTILE = [
    "<script>window.owned = 1</script><img src=x onerror='window.owned = 1'>",
    "<svg/onload=window.owned=1><iframe srcdoc='<script>parent.owned=1</script>'></iframe>",
    "[click](javascript:window.owned=1) [data](data:text/html,<script>owned=1</script>) [x](  JaVaScRiPt:owned=1)",
    "[here](/v1/models) ![pixel](https://tracker.example/p.png) ![p](data:image/png;base64,AAAA)",
    "<a href='https://evil.example' onclick='owned=1'>a</a> <javascript:owned=1> <style>*{display:none}</style>",
    "| <b>a</b> | `<i>` |\n|---|---|\n| <script>owned=1</script> | [x](vbscript:owned=1) |",
    "```\"><script>window.owned=1</script>\n</code></pre><script>window.owned=1</script>\n```",
    "# <img src=x onerror=owned=1>\n\n1. <script>owned=1</script>\n\n> <svg onload=owned=1>",
    "https://ok.example/\"onmouseover=\"owned=1 http://x.example/<script>owned=1</script>",
    "__proto__ constructor {{7*7}} ${owned=1} \u202eevil \u0000 </textarea></title>",
]
# Each took quadratic or deeper time in some renderer.
HEAVY = ["*a " * 6000, "[" * 9000, "> " * 3000 + "x", "- " * 2000 + "x", "`" * 9000, "`a``" * 4000, "_" * 9000, "**" * 6000,
         "|" * 9000 + "\n" + "|-" * 4000 + "|", "#" * 9000, "# " + " " * 9000 + "x", "\\" * 9000, "<http://" * 2000,
         "![](" * 3000, "~~~\n" * 2000, "\n".join(" " * n + "- x" for n in range(300)), "a  \n" * 4000,
         "~~~" + " " * 200000 + "`", "a|b\n-" + " " * 200000 + "x", "[a](" + " " * 200000 + "b", "_a_" * 80000,
         *(mark + " " * 200000 + "\u2028" for mark in ["# ", "- ", "> ", "- [x] "])]


def never_runs_what_a_model_writes(page):
    strange = []
    page.on("request", lambda request: strange.append(request.url) if not request.url.startswith(OPEN) else None)
    page.on("dialog", lambda dialog: strange.append(dialog.message) or dialog.dismiss())
    page.goto(OPEN)
    for text in ["\n\n".join(HOSTILE), *HOSTILE]:
        page.unroute_all()
        reply(page, **stream(text, text, pieces=5))
        page.get_by_role("button", name="New chat").click()
        send(page, text)
        settled(page)
        assert page.evaluate("window.owned") is None, text
        found = page.locator("#messages").evaluate("""it => [...it.querySelectorAll('*')].filter((node) =>
            ['SCRIPT', 'IFRAME', 'IMG', 'STYLE', 'OBJECT', 'EMBED'].includes(node.nodeName)
            || node.getAttributeNames().some((name) => name.startsWith('on'))
            || (node.href && !/^(https?|mailto):/.test(node.href.baseVal ?? node.href))
            || (node.href && new URL(node.href.baseVal ?? node.href).origin === location.origin)).map((node) => node.outerHTML)""")
        assert not found, found
    shot(page, "hostile")
    assert not strange, strange
    # Even code that came in by another way is not run.
    refused = page.evaluate("""() => { try { document.body.innerHTML = '<img src=x onerror=owned=1>'; return ''; }
        catch (error) { return error.name; } }""")
    assert refused == "TypeError", refused


def renders_heavy_text_in_time(page):
    page.goto(OPEN)
    # What time a busy machine takes says nothing; but that of quadratic work grows out of proportion to that of plain text.
    times = page.evaluate("""async (texts) => {
        const { render } = await import('/page/markdown.js');
        const time = (text) => {
            let best = Infinity;
            for (let run = 0; run < 3; run++) {
                const container = document.createElement('div');
                const start = performance.now();
                render(container, text);
                best = Math.min(best, performance.now() - start);
            }
            return best;
        };
        return texts.map(time);
    }""", HEAVY)
    slow = [(text[:20], ms) for text, ms in zip(HEAVY, times) if ms > 3000]
    assert not slow, slow


def tells_errors_and_what_to_do(page):
    page.goto(OPEN)
    limit(page, 8)
    page.reload()
    send(page, "word " * 9000)
    problem = page.get_by_role("alert")
    expect(problem).to_contain_text("Begin a new chat")
    shot(page, "error")
    page.get_by_role("button", name="New chat").click()
    reply(page, status=503, headers={"retry-after": "7"}, content_type="application/json",
          body=json.dumps({"error": {"message": "the queue is full", "code": "overloaded"}}))
    send(page, "Hello")
    expect(problem).to_contain_text("the queue is full")
    expect(problem).to_contain_text("Try again in 7 s")
    page.unroute_all()
    page.route(CHAT, lambda route: route.abort("connectionrefused"))
    page.get_by_role("button", name="Try again").click()
    expect(problem).to_contain_text("can't be reached")
    page.unroute_all()
    reply(page, **stream("Half an ans", end=False))
    page.get_by_role("button", name="Try again").click()
    expect(problem).to_contain_text("broke off")
    expect(answers(page)).to_contain_text("Half an ans")
    page.unroute_all()
    page.get_by_role("button", name="Try again").click()
    settled(page)
    expect(problem).to_have_count(0)
    expect(answers(page)).to_contain_text("4 / 4")


# What another page of this address, another version or a person may have left; the first one is whole.
STORED = [
    {"title": "fine", "used": 1, "messages": [{"role": "user", "content": "Hello"}]},
    {}, 5, None, [], {"messages": 1}, {"title": "a"}, {"title": None, "used": 1, "messages": []},
    {"title": "b", "used": "x", "messages": [None]}, {"title": "c", "messages": [{"role": "assistant"}]},
    {"title": "d", "messages": [{"role": "assistant", "variants": [], "chosen": 7}]},
]


def takes_what_is_stored_as_it_comes(page):
    page.goto(OPEN)
    page.evaluate("""(chats) => {
        chats.forEach((chat, i) => {
            localStorage['smelt.chat.' + i] = JSON.stringify(chat && typeof chat === 'object' ? { ...chat, id: String(i) } : chat);
        });
        localStorage['smelt.chat.broken'] = '{';
        localStorage['smelt.settings'] = '5';
    }""", STORED)
    page.reload()
    reply(page, **stream("An answer."))
    page.get_by_label("Search").fill("hello")
    expect(page.locator("#history button.open")).to_have_text(["fine"])
    page.get_by_label("Search").fill("")
    expect(page.locator("#history button.open")).to_have_text(["fine"])
    send(page, "Hello")
    settled(page)
    expect(answers(page)).to_contain_text("An answer.")
    expect(page.locator("#history button.open")).to_have_count(2)


def needs_no_storage(page):
    # As browsers do that are told to keep nothing of a site.
    page.add_init_script("""for (const name of ['localStorage', 'sessionStorage']) {
        Object.defineProperty(window, name, { get() { throw new DOMException('denied', 'SecurityError'); } });
    }""")
    page.goto(OPEN)
    expect(page.get_by_label("Model", exact=True)).to_have_value("model")
    reply(page, **stream("An answer."))
    send(page, "Hello")
    settled(page)
    expect(answers(page)).to_contain_text("An answer.")
    expect(page.locator("#history button.open")).to_have_text(["Hello"])
    page.get_by_role("button", name="Theme").click()
    page.get_by_role("button", name="Theme").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")


def goes_on_where_the_storage_is_full(page):
    page.goto(OPEN)
    page.evaluate("""() => {
        let size = 1 << 22;
        for (let at = 0; size; at++) {
            try { localStorage['other' + at] = 'x'.repeat(size); } catch { size >>= 1; }
        }
    }""")
    reply(page, **stream("An answer."))
    send(page, "Hello")
    settled(page)
    expect(answers(page)).to_contain_text("An answer.")
    expect(page.locator("#toast")).to_contain_text("no room")
    send(page, "And more?")
    expect(answers(page)).to_have_count(2)


def asks_for_the_key(page):
    page.goto(KEYED)
    dialog = page.get_by_role("dialog", name=re.compile("key"))
    expect(dialog).to_be_visible()
    shot(page, "key")
    page.get_by_label("API key").fill("wrong")
    page.keyboard.press("Enter")
    expect(dialog).to_contain_text("refused this key")
    page.get_by_label("API key").fill(KEY)
    page.keyboard.press("Enter")
    expect(page.get_by_label("Model", exact=True)).to_have_value("model")
    limit(page, 8)
    send(page, "Hello")
    settled(page)
    expect(answers(page).locator(".body")).not_to_be_empty()
    assert page.evaluate("Object.values(localStorage).join()").count(KEY) == 0
    assert page.evaluate("sessionStorage['smelt.key']") == KEY


def fits_small_screens_and_stays_home(page):
    urls = []
    page.on("request", lambda request: urls.append(request.url))
    page.set_viewport_size(NARROW)
    reply(page, **stream(SHOW))
    page.goto(OPEN)
    send(page, "Show me what you can do")
    settled(page)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.locator("#scroll").evaluate("it => it.scrollTo(0, 300)")
    expect(page.get_by_role("button", name="To the newest message")).to_be_visible()
    shot(page, "small")
    page.get_by_role("button", name="To the newest message").click()
    page.get_by_role("button", name="Chats", exact=True).click()
    expect(page.get_by_role("button", name="New chat")).to_be_focused()
    page.wait_for_timeout(300)
    shot(page, "small-menu")
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="New chat")).to_be_hidden()
    assert urls and all(url.startswith(OPEN) for url in urls), urls


CASES = [
    streams_stops_and_regenerates,
    edits_and_keeps_history,
    works_by_keyboard_only,
    shows_markdown_in_both_themes,
    never_runs_what_a_model_writes,
    renders_heavy_text_in_time,
    tells_errors_and_what_to_do,
    takes_what_is_stored_as_it_comes,
    needs_no_storage,
    goes_on_where_the_storage_is_full,
    asks_for_the_key,
    fits_small_screens_and_stays_home,
]


def main():
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not chromium:
        sys.exit("no Chromium on the PATH: install one, e.g. `apt-get install chromium`")
    # Its sandbox refuses to work for root, which containers run as.
    flags = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=flags)
        wanted = sys.argv[5:]
        for case in CASES:
            if wanted and case.__name__ not in wanted:
                continue
            start = time.monotonic()
            context = browser.new_context(viewport=WIDE, permissions=["clipboard-read", "clipboard-write"])
            page = context.new_page()
            page.set_default_timeout(60_000)
            faults = []
            page.on("pageerror", lambda error: faults.append(str(error)))
            try:
                case(page)
            except BaseException:
                shot(page, f"failed-{case.__name__}")
                print("\n".join(faults))
                raise
            assert not faults, faults
            context.close()
            print(f"{case.__name__} passed in {time.monotonic() - start:.1f} s", flush=True)
        print(f"page: {len(wanted or CASES)} passed with Chromium {browser.version}")
        browser.close()


main()
