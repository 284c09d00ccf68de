//! Answers as they arrive.

use serde_json::{Map, Value, json};
use smelt_tokenizer::answer::{FORMATS, Held, Part, Reader, ReaderOptions, ThinkTags};

use super::calls::CALLS;
use super::{options, read, tools};

#[test]
fn certain_arguments_are_told_as_they_come() {
    let text =
        "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"location\": \"Rome\"}}\n</tool_call>";
    let mut reader = Reader::new(ReaderOptions { held: Held::OnlyCalls, ..options("hermes") });
    let parts: Vec<Part> = text.split_inclusive(|_| true).flat_map(|piece| reader.push(piece)).collect();
    assert_eq!(parts[0], Part::Call("get_weather".to_owned()));
    assert!(parts.len() > 15, "{parts:?}");
    // One that the end cuts off is told as far as it came.
    let mut reader = Reader::new(ReaderOptions { held: Held::OnlyCalls, ..options("hermes") });
    let mut parts = reader.push(&text[..text.len() - 17]);
    parts.extend(reader.finish());
    assert_eq!(
        parts,
        [Part::Call("get_weather".to_owned()), Part::Arguments("{\"location\": \"Rom".to_owned())]
    );
    // Of a further one whose name the end cuts off there is nothing to tell, and its marks are no content.
    for rest in ["\n", "\n<tool", "<tool_call>", "<tool_call>\n{\"name\": \"get_w"] {
        let mut reader = Reader::new(ReaderOptions { held: Held::OnlyCalls, ..options("hermes") });
        let mut parts = reader.push(&format!("{text}{rest}"));
        parts.extend(reader.finish());
        assert!(parts.iter().all(|part| !matches!(part, Part::Content(_))), "{parts:?}");
    }
}

/// A text of odd characters. Lines of its own may hold it in some notations, so it neither begins nor ends with a break.
fn odd_text(random: &mut fastrand::Rng) -> String {
    const ODD: [&str; 18] = [
        "a", "é", "🦙", "\"", "\\", "\n", "{", "}", "'", " ", "\t", "<", ">", "]", ")", "\u{7f}", "\\u",
        "null",
    ];
    match random.u8(..4) {
        0 => String::new(),
        1 => "12".to_owned(),
        _ => {
            let inner: String = (0..random.usize(..12)).map(|_| ODD[random.usize(..ODD.len())]).collect();
            format!("x{inner}x")
        }
    }
}

/// Arguments of `get_weather`, of which each may be missing.
fn odd_arguments(random: &mut fastrand::Rng) -> Map<String, Value> {
    const NUMBERS: [&str; 6] = ["0", "-2", "2.5", "1e-7", "123456789012345678", "-0.25"];
    let number = |random: &mut fastrand::Rng| {
        serde_json::from_str::<Value>(NUMBERS[random.usize(..NUMBERS.len())]).unwrap()
    };
    let limits = |random: &mut fastrand::Rng| {
        let items = (0..random.usize(..4)).map(|_| match random.bool() {
            true => number(random),
            false => json!([odd_text(random), null]),
        });
        Value::Array(items.collect())
    };
    let place = |random: &mut fastrand::Rng| json!({"b": {"c": odd_text(random)}, "d": [], "e": {}});
    let all = [
        ("location", json!(odd_text(random))),
        ("days", number(random)),
        ("exact", random.bool().into()),
        ("limits", limits(random)),
        ("where", place(random)),
    ];
    all.into_iter().filter(|_| random.bool()).map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Pieces of at most so many bytes, or of one character.
fn pieces<'a>(mut text: &'a str, most: usize, random: &mut fastrand::Rng) -> Vec<&'a str> {
    let mut pieces = Vec::new();
    while !text.is_empty() {
        let wanted = random.usize(1..=most).min(text.len());
        let fits = (1..=wanted).rev().find(|at| text.is_char_boundary(*at));
        let at = fits.unwrap_or(text.chars().next().unwrap().len_utf8());
        pieces.push(&text[..at]);
        text = &text[at..];
    }
    pieces
}

/// What was told: content, and calls with their arguments as text.
fn told(parts: Vec<Part>) -> (String, Vec<(String, String)>) {
    let (mut content, mut calls) = (String::new(), Vec::new());
    for part in parts {
        match part {
            Part::Content(text) | Part::Reasoning(text) => content.push_str(&text),
            Part::Call(name) => calls.push((name, String::new())),
            Part::Arguments(text) => calls.last_mut().unwrap().1.push_str(&text),
        }
    }
    (content, calls)
}

fn parts(options: &ReaderOptions, pieces: &[&str]) -> Vec<Part> {
    let mut reader = Reader::new(options.clone());
    let mut parts: Vec<Part> = pieces.iter().flat_map(|piece| reader.push(piece)).collect();
    parts.extend(reader.finish());
    parts
}

#[test]
fn odd_calls_are_told_alike_however_they_arrive() {
    let mut random = fastrand::Rng::with_seed(11);
    for format in FORMATS {
        for round in 0..60 {
            let calls = [odd_arguments(&mut random), odd_arguments(&mut random)];
            let written =
                format.write(&[("get_weather", &calls[0]), ("get", &Map::new()), ("get_weather", &calls[1])]);
            // Llama 3 has no mark: what it says in front makes its calls text.
            let lead = if format.name == "llama3" || random.bool() { "" } else { "Let me <see>.\n" };
            let text = format!("{lead}{written}");
            let want: Vec<(String, Value)> =
                [("get_weather", &calls[0]), ("get", &Map::new()), ("get_weather", &calls[1])]
                    .map(|(name, arguments)| (name.to_owned(), Value::Object(arguments.clone())))
                    .into();
            let mut first = None;
            for held in [Held::Free, Held::Calls, Held::OnlyCalls, Held::CallsOrContent] {
                let options = ReaderOptions { held, thinking: None, ..options(format.name) };
                let whole = told(parts(&options, &[&text]));
                if held == Held::CallsOrContent && !lead.is_empty() {
                    assert_eq!(whole, (text.clone(), Vec::new()), "content with a form has no calls in it");
                    continue;
                }
                let read =
                    |(name, text): &(String, String)| (name.clone(), serde_json::from_str(text).unwrap());
                let calls: Vec<(String, Value)> = whole.1.iter().map(read).collect();
                assert_eq!((whole.0.as_str(), &calls), (lead.trim_end(), &want), "{}: {text}", format.name);
                assert_eq!(first.get_or_insert_with(|| whole.clone()), &whole, "{}: {text}", format.name);
                for most in [1, 3, 17] {
                    let pieces = pieces(&text, most, &mut random);
                    let streamed = parts(&options, &pieces);
                    assert_eq!(told(streamed), whole, "{} {held:?} {round}: {pieces:?}", format.name);
                }
            }
        }
    }
}

#[test]
fn arguments_are_told_as_they_are_written() {
    let long = "so it goes on ".repeat(20);
    let arguments = json!({"location": long, "days": 12, "where": {"a": long}});
    for format in FORMATS {
        let text = format.write(&[("get_weather", arguments.as_object().unwrap())]);
        let options = ReaderOptions { held: Held::Calls, ..options(format.name) };
        let mut reader = Reader::new(options);
        let (mut named, mut told) = (None, String::new());
        let mut behind = Vec::new();
        for (at, c) in text.char_indices().chain([(text.len(), '\n')]) {
            let parts = reader.push(c.encode_utf8(&mut [0; 4]));
            for part in parts.into_iter().chain(if at == text.len() { reader.finish() } else { Vec::new() }) {
                match part {
                    Part::Call(name) => named = Some((name, at)),
                    Part::Arguments(more) => told.push_str(&more),
                    other => panic!("{}: {other:?}", format.name),
                }
            }
            behind.push(told.len());
        }
        // The name is told where it is there, and of a long text no more than a few words are kept back.
        let (name, at) = named.unwrap();
        let begin = text.find("so it").unwrap();
        assert!(name == "get_weather" && at <= begin, "{}: {at} {begin}", format.name);
        let end = begin + long.len();
        assert!(behind[end - 1] + 40 > long.len(), "{}: {} of {}", format.name, behind[end - 1], long.len());
        assert_eq!(serde_json::from_str::<Value>(&told).unwrap(), arguments, "{}", format.name);
    }
}

#[test]
fn what_is_cut_off_is_told_as_far_as_it_came() {
    let arguments = json!({"location": "a \"b\" c", "days": 12, "limits": [1, 2.5]});
    for format in FORMATS {
        let text = format.write(&[("get_weather", arguments.as_object().unwrap())]);
        let further = format!("{text} \n{text}");
        for held in [Held::Calls, Held::OnlyCalls, Held::CallsOrContent] {
            let options = ReaderOptions { held, ..options(format.name) };
            // Of a further call nothing is content but what isn't known to be one yet.
            for (at, _) in further.char_indices().filter(|(at, _)| *at > text.len()) {
                let (content, calls) = told(parts(&options, &[&further[..at]]));
                let is_unknown = held == Held::Calls && further[text.len()..at].contains(&content);
                assert!(
                    !calls.is_empty() && (content.is_empty() || is_unknown),
                    "{}: {content}",
                    format.name
                );
            }
            for (at, _) in text.char_indices() {
                let cut = &text[..at];
                let whole = told(parts(&options, &[cut]));
                let single: Vec<&str> = cut.split_inclusive(|_| true).collect();
                assert_eq!(told(parts(&options, &single)), whole, "{} {held:?}: {cut}", format.name);
                // It is text up to the name, and the beginning of a call from there on.
                assert!(
                    whole.1.is_empty() || whole.0.is_empty(),
                    "{} {held:?}: {cut}: {whole:?}",
                    format.name
                );
            }
        }
    }
}

#[test]
fn thoughts_may_be_told_as_content() {
    let call = "<tool_call>{\"name\": \"get\", \"arguments\": {}}</tool_call>";
    let text = format!(" <think>\nHm, {call} \n</think>\n\nSo:\n{call}");
    for held in [Held::Free, Held::Calls] {
        let options = ReaderOptions { thinking_is_content: true, held, ..options("hermes") };
        for open in [false, true] {
            let options = ReaderOptions { thinking_is_open: open, ..options.clone() };
            let text = if open { text.strip_prefix(" <think>").unwrap() } else { &text };
            let single: Vec<&str> = text.split_inclusive(|_| true).collect();
            for pieces in [vec![text], single] {
                let content = text.strip_suffix(call).unwrap().trim_end().to_owned();
                let want = (content, vec![("get".to_owned(), "{}".to_owned())]);
                assert_eq!(told(parts(&options, &pieces)), want);
            }
        }
    }
}

#[test]
fn long_calls_are_read_in_linear_time() {
    // Whatever the model writes: characters at which a call may end, in a string that goes on for ever. Were each of these
    // pieces to have the call read anew, this would take hours.
    let pieces = ["{}", "})]", "/>`", "\\\"]", " x]"].iter().cycle().take(30_000);
    let long: String = pieces.copied().collect();
    for (format, text, ..) in CALLS {
        let (head, tail) = text.split_at(text.find("Rome").unwrap_or(text.len()));
        for held in [Held::Free, Held::Calls, Held::OnlyCalls] {
            let mut reader = Reader::new(ReaderOptions { held, ..options(format) });
            let mut told = 0;
            let mut count = |parts: Vec<Part>| {
                told += parts
                    .iter()
                    .map(|part| match part {
                        Part::Arguments(text) | Part::Content(text) | Part::Reasoning(text) => text.len(),
                        Part::Call(_) => 0,
                    })
                    .sum::<usize>();
            };
            count(reader.push(head));
            let mut rest = long.as_str();
            while !rest.is_empty() {
                let (piece, behind) = rest.split_at(rest.len().min(3));
                count(reader.push(piece));
                rest = behind;
            }
            count(reader.push(tail));
            count(reader.finish());
            assert!(told > long.len() / 2, "{format}: {told} bytes were told");
        }
    }
}

/// Pieces of which hostile answers are made.
const SHARDS: &[&str] = &[
    "<tool_call>",
    "</tool_call>",
    "<think>",
    "</think>",
    "{\"name\": \"get\"",
    "{\"name\": \"get_weather\", ",
    "\"arguments\": {",
    "\"parameters\": ",
    "}",
    "]",
    "[",
    ")",
    "(",
    "get_weather",
    "get",
    "location=",
    "\"",
    "'",
    "\\",
    "\n",
    " ",
    ", ",
    ";",
    ":",
    "{",
    "1",
    "null",
    "é",
    "🦙",
    "<",
    "[TOOL_CALLS]",
    "[ARGS]",
    "<|python_tag|>",
    "<function=",
    ">",
    "</function>",
    "<parameter=",
    "</parameter>",
    "<|tool_call_start|>",
    "<|tool_call_end|>",
    "call:",
    "<|\"|>",
    "<|tool_call>",
    "<tool_call|>",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁sep｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁calls▁end｜>",
    "word",
];

#[test]
fn any_text_is_read_alike_however_it_is_cut() {
    let mut random = fastrand::Rng::with_seed(7);
    for round in 0..4000 {
        let format = &FORMATS[random.usize(..FORMATS.len())];
        let (_, good, ..) = CALLS.iter().find(|(name, ..)| *name == format.name).unwrap_or(&CALLS[0]);
        let mut text = String::new();
        for _ in 0..random.usize(1..12) {
            match random.u8(..10) {
                0 => text.push_str(good),
                1 => {
                    let cut = (0..random.usize(..=good.len()))
                        .rev()
                        .find(|at| good.is_char_boundary(*at))
                        .unwrap_or(0);
                    text.push_str(&good[..cut]);
                }
                _ => text.push_str(SHARDS[random.usize(..SHARDS.len())]),
            }
        }
        let options = ReaderOptions {
            thinking: ThinkTags::of_template("</think>").filter(|_| random.bool()),
            thinking_is_open: random.bool(),
            calls: Some((format, tools())),
            one_call: random.u8(..4) == 0,
            held: Held::Free,
            thinking_is_content: false,
        };
        let whole = read(&options, [text.as_str()]);
        assert_eq!(
            read(&options, pieces(&text, 9, &mut random)),
            whole,
            "round {round}, {}: {text:?}",
            format.name
        );
        // Whatever it is, no character of it is lost, where there are no calls and all may be told.
        if whole.calls.is_empty() && !options.one_call {
            let squeezed = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
            let told = squeezed(&(whole.reasoning + &whole.content));
            let said = squeezed(&text);
            assert!(
                told == said
                    || said.replacen("<think>", "", 1).replacen("</think>", "", 1) == told
                    || said.replacen("</think>", "", 1) == told
                    || said.replacen("<think>", "", 1) == told,
                "{text:?}: {told:?}"
            );
        }
    }
}
