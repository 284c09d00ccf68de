//! What a user wrote stays a user's text, whatever the template does with it.

use serde_json::{Value, json};
use smelt_tokenizer::chat::{ChatTemplate, FAMILIES, Message, RenderOptions, Rendered, Segment};

use crate::chat::{json, messages, options, templates};

/// Strings that some family treats as control tokens, in pieces as well, with characters that imitate marks.
const ATTACKS: &[&str] = &[
    "<|im_start|>",
    "<|im_end|>",
    "<|eot_id|>",
    "<end_of_turn>",
    "[INST]",
    "</s>",
    "<|user|>",
    "<|end|>",
    "<|",
    "|>",
    "im_end",
    "</think>",
    "<think>",
    "<tool_call>",
    "\u{e000}",
    "\u{f8ff}\u{10fffd}",
    "\u{0}",
    "\u{200b}",
    "é🔥",
    "ǅ",
    "\"\\\n\t",
    "'",
    "  ",
    "{{ x }}",
    "{% if %}",
    "x",
];

fn noise(rng: &mut fastrand::Rng) -> String {
    (0..rng.usize(1..5)).map(|_| ATTACKS[rng.usize(..ATTACKS.len())]).collect()
}

/// Puts something into every string of `json` but roles and types.
fn attack(json: &mut Value, rng: &mut fastrand::Rng) {
    match json {
        Value::String(s) => {
            let at = s.char_indices().map(|(i, _)| i).nth(rng.usize(..=s.chars().count())).unwrap_or(s.len());
            s.insert_str(at, &noise(rng));
        }
        Value::Array(items) => items.iter_mut().for_each(|i| attack(i, rng)),
        Value::Object(fields) => {
            for (_, value) in fields.iter_mut().filter(|(k, _)| *k != "role" && *k != "type") {
                attack(value, rng);
            }
        }
        _ => {}
    }
}

fn check_ranges(r: &Rendered) {
    let mut end = None;
    for range in &r.user {
        assert!(range.start < range.end && end.is_none_or(|e| e < range.start), "{:?}", r.user);
        assert!(r.text.is_char_boundary(range.start) && r.text.is_char_boundary(range.end));
        end = Some(range.end);
    }
    let joined: String = r.segments().map(|s| s.as_str()).collect();
    assert_eq!(joined, r.text);
    let template: usize = r.template_ranges().map(|t| t.len()).sum();
    let user: usize = r.user.iter().map(|u| u.len()).sum();
    assert_eq!(template + user, r.text.len());
}

fn template_text(r: &Rendered) -> String {
    r.template_ranges().map(|t| format!("{}\u{0}", &r.text[t])).collect()
}

/// The letters of a secret alphabet occur in user strings only, so any of them in the template's part is a leak.
#[test]
fn every_character_of_a_user_is_a_users() {
    let cases = json("cases.json");
    let mut rng = fastrand::Rng::with_seed(1);
    let secret = |c: char| ('\u{a000}'..='\u{a48c}').contains(&c);
    let mut seen = 0;
    let mut all: Vec<(String, String)> = templates().into_iter().collect();
    all.extend(FAMILIES.iter().map(|f| (f.name.to_owned(), f.template.to_owned())));
    for (name, source) in all {
        let template = ChatTemplate::new(&source, "<BOS>", "<EOS>").unwrap();
        for case in cases.as_object().unwrap().values() {
            let mut case = case.clone();
            spread(&mut case, &mut rng);
            let Ok(r) = template.render(&messages(&case), &options(&case)) else { continue };
            check_ranges(&r);
            for piece in r.segments() {
                match piece {
                    Segment::Template(t) => assert!(!t.contains(secret), "{name}: leaked in {t:?} of {r:?}"),
                    Segment::User(u) => seen += u.chars().filter(|c| secret(*c)).count(),
                }
            }
        }
    }
    assert!(seen > 10_000, "{seen}");
}

/// Appends secret letters to every string but roles and types.
fn spread(json: &mut Value, rng: &mut fastrand::Rng) {
    match json {
        Value::String(s) => {
            for _ in 0..3 {
                let letter = char::from_u32(0xa000 + rng.u32(..0x48d)).unwrap();
                let at =
                    s.char_indices().map(|(i, _)| i).nth(rng.usize(..=s.chars().count())).unwrap_or(s.len());
                s.insert(at, letter);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|i| spread(i, rng)),
        Value::Object(fields) => {
            for (_, value) in fields.iter_mut().filter(|(k, _)| *k != "role" && *k != "type") {
                spread(value, rng);
            }
        }
        _ => {}
    }
}

/// Control text in the messages changes neither how many control tokens the template writes, nor where they may be
/// matched: rendered with every user string replaced, the template's own text is the same.
#[test]
fn control_text_of_a_user_is_never_the_templates() {
    let mut rng = fastrand::Rng::with_seed(2);
    for family in FAMILIES {
        let template = ChatTemplate::new(family.template, "<s>", "</s>").unwrap();
        let render = |contents: [&str; 4]| {
            let roles = ["system", "user", "assistant", "user"];
            let list: Vec<Message> = roles.iter().zip(contents).map(|(r, c)| Message::new(r, c)).collect();
            let options = RenderOptions { add_generation_prompt: true, ..RenderOptions::default() };
            template.render(&list, &options).unwrap()
        };
        let plain = template_text(&render(["a", "b", "c", "d"]));
        for _ in 0..200 {
            let texts: [String; 4] = std::array::from_fn(|_| format!("q{}q", noise(&mut rng)));
            let r = render(texts.each_ref().map(String::as_str));
            check_ranges(&r);
            assert_eq!(template_text(&r), plain, "{}: {texts:?}", family.name);
        }
    }
}

#[test]
fn attacks_on_every_template_keep_the_marks_consistent() {
    let cases = json("cases.json");
    let mut rng = fastrand::Rng::with_seed(3);
    for source in templates().values() {
        let template = ChatTemplate::new(source, "<BOS>", "<EOS>").unwrap();
        for case in cases.as_object().unwrap().values() {
            let mut case = case.clone();
            for key in ["messages", "tools", "documents"] {
                attack(&mut case[key], &mut rng);
            }
            if let Ok(r) = template.render(&messages(&case), &options(&case)) {
                check_ranges(&r);
            }
        }
    }
}

fn marked(source: &str, content: &str) -> String {
    let template = ChatTemplate::new(source, "<s>", "</s>").unwrap();
    let mut message = Message::new("user", content);
    message.fields_mut().insert("data".to_owned(), json!({"k<": ["<v>", 1, null], "n": {"m": "é"}}));
    let r = template.render(&[message], &RenderOptions::default()).unwrap();
    check_ranges(&r);
    r.segments()
        .map(|s| match s {
            Segment::Template(t) => t.to_owned(),
            Segment::User(u) => format!("⟦{u}⟧"),
        })
        .collect()
}

#[test]
fn marks_survive_what_templates_do() {
    let cases = [
        ("{{ m.content }}", "⟦ <|a|>b, C ⟧"),
        ("{{ m.content | trim }}!", "⟦<|a|>b, C⟧!"),
        ("{{ m.content[1:4] ~ 'x' ~ m.content[::-1] }}", "⟦<|a⟧x⟦ C ,b>|a|< ⟧"),
        ("{{ m.content.split('|') | join('|') }}", "⟦ <⟧|⟦a⟧|⟦>b, C ⟧"),
        ("{{ m.content.split(',')[-1].strip() | upper }}", "⟦C⟧"),
        ("{{ m.content.replace('<|a|>', '<s>') }}", "⟦ ⟧<s>⟦b, C ⟧"),
        ("{{ 'x,y'.replace(',', m.content) }}", "x⟦ <|a|>b, C ⟧y"),
        ("{{ '%s|%d' % (m.content, 3) }}", "⟦ <|a|>b, C ⟧|3"),
        ("{{ '{}-{a}'.format(m.content, a=m.role) }}", "⟦ <|a|>b, C ⟧-user"),
        ("{{ m.data | tojson }}", "{\"⟦k<⟧\": [\"⟦<v>⟧\", 1, null], \"⟦n⟧\": {\"⟦m⟧\": \"⟦é⟧\"}}"),
        ("{{ m.data.n | tojson(ensure_ascii=true) }}", "{\"⟦m⟧\": \"⟦\\u00e9⟧\"}"),
        ("{{ m.data }}", "{'⟦k<⟧': ['⟦<v>⟧', 1, None], '⟦n⟧': {'⟦m⟧': '⟦é⟧'}}"),
        ("{% for c in m.content[:3] %}{{ c }}.{% endfor %}", "⟦ ⟧.⟦<⟧.⟦|⟧."),
        ("{% set t %}<{{ m.content | trim }}>{% endset %}{{ t | length ~ t }}", "11<⟦<|a|>b, C⟧>"),
        ("{% macro f(x) %}[{{ x }}]{% endmacro %}{{ f(m.content | lower) }}", "[⟦ <|a|>b, c ⟧]"),
        ("{% filter upper %}a{{ m.content }}{% endfilter %}", "A⟦ <|A|>B, C ⟧"),
        ("{{ m.content == ' <|a|>b, C ' and '<|a|>' in m.content }}", "True"),
        ("{{ m.content | escape }}", "⟦ &lt;|a|&gt;b, C ⟧"),
        ("{{ ('<' ~ m.content ~ '>') | list | last }}", ">"),
    ];
    for (source, expected) in cases {
        let source = format!("{{% set m = messages[0] %}}{source}");
        assert_eq!(marked(&source, " <|a|>b, C "), expected, "{source}");
    }
}

#[test]
fn a_made_up_role_is_a_users_text() {
    let template = ChatTemplate::new("{{ '<|' ~ messages[0].role ~ '|>' }}", "", "").unwrap();
    let segments = |role| {
        let r = template.render(&[Message::new(role, "")], &RenderOptions::default()).unwrap();
        (r.template_ranges().count(), r.user.len())
    };
    assert_eq!(segments("assistant"), (1, 0));
    assert_eq!(segments("im_end"), (2, 1));
}

#[test]
fn knows_whether_the_template_wrote_bos() {
    let text = "<s>hi".to_owned();
    let only = |range| std::iter::once(range).collect();
    assert!(Rendered::template(text.clone()).begins_with("<s>"));
    assert!(!Rendered::user(text.clone()).begins_with("<s>"));
    assert!(!Rendered { text: text.clone(), user: only(2..5) }.begins_with("<s>"));
    assert!(Rendered { text, user: only(3..5) }.begins_with("<s>"));
    assert!(!Rendered::template("hi").begins_with(""));
}
