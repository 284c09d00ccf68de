//! Stop strings against a search of the whole text.

use fastrand::Rng;
use smelt_engine::stop::{Emit, StopError, StopMatcher};

fn matcher(stops: &[&str]) -> StopMatcher {
    let stops: Vec<String> = stops.iter().map(ToString::to_string).collect();
    StopMatcher::new(&stops).unwrap()
}

/// Pushes the pieces and finishes: all text let out, and the stop that was found.
fn run(stops: &[&str], pieces: &[&str]) -> (String, Option<usize>) {
    let mut matcher = matcher(stops);
    let mut out = String::new();
    let mut stopped = None;
    for piece in pieces {
        let emit = matcher.push(piece);
        out.push_str(emit.text);
        stopped = emit.stopped;
    }
    out.push_str(&matcher.finish());
    (out, stopped)
}

/// The definition: of all occurrences, the one that ends first, then the longest; (where it begins, which).
fn first_stop(text: &str, stops: &[&str]) -> Option<(usize, usize)> {
    (1..=text.len()).find_map(|end| {
        let ending =
            stops.iter().enumerate().filter(|(_, stop)| text.as_bytes()[..end].ends_with(stop.as_bytes()));
        // Of equal strings the first in the list.
        let (index, stop) = ending.rev().max_by_key(|(_, stop)| stop.len())?;
        Some((end - stop.len(), index))
    })
}

fn random_text(rng: &mut Rng, alphabet: &[char], max: usize) -> String {
    (0..rng.usize(..=max)).map(|_| alphabet[rng.usize(..alphabet.len())]).collect()
}

/// Cuts between characters, sometimes into empty pieces.
fn random_pieces<'t>(rng: &mut Rng, text: &'t str) -> Vec<&'t str> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let n = rng.usize(..=rest.chars().count().min(5));
        let cut = rest.char_indices().nth(n).map_or(rest.len(), |(at, _)| at);
        let (piece, left) = rest.split_at(cut);
        pieces.push(piece);
        rest = left;
    }
    pieces
}

#[test]
fn however_text_is_cut_it_ends_at_the_first_stop_and_only_possible_stops_are_held() {
    let alphabets: [&[char]; 4] = [&['a'], &['a', 'b'], &['a', 'b', 'c'], &['é', 'è', '猫', '😀', 'a']];
    let mut rng = Rng::with_seed(7);
    let (mut found, mut passed) = (0, 0);
    for case in 0..20_000 {
        let alphabet = alphabets[case % alphabets.len()];
        let stops: Vec<String> = (0..rng.usize(..5))
            .map(|_| random_text(&mut rng, alphabet, 5))
            .filter(|s| !s.is_empty())
            .collect();
        let refs: Vec<&str> = stops.iter().map(String::as_str).collect();
        let text = random_text(&mut rng, alphabet, 24);
        let expected = first_stop(&text, &refs);

        let mut matcher = StopMatcher::new(&stops).unwrap();
        let (mut seen, mut out, mut stopped) = (String::new(), String::new(), None);
        for piece in random_pieces(&mut rng, &text) {
            let emit = matcher.push(piece);
            out.push_str(emit.text);
            if stopped.is_some() {
                assert_eq!(emit, Emit { text: "", stopped }, "text came after a stop");
                continue;
            }
            stopped = emit.stopped;
            seen.push_str(piece);
            if stopped.is_none() {
                assert_eq!(format!("{out}{}", matcher.held()), seen, "text was lost or invented");
                let may_stop = |from: &usize| {
                    refs.iter().any(|s| s.len() > seen.len() - from && s.starts_with(&seen[*from..]))
                };
                let starts = seen.char_indices().map(|(at, _)| at).chain([seen.len()]);
                let held_from = starts.into_iter().find(may_stop).unwrap_or(seen.len());
                assert_eq!(matcher.held(), &seen[held_from..], "{refs:?} in {seen:?}");
            }
        }
        out.push_str(&matcher.finish());
        match expected {
            Some((at, index)) => {
                assert_eq!((out.as_str(), stopped), (&text[..at], Some(index)), "{refs:?} in {text:?}");
                found += 1;
            }
            None => {
                assert_eq!((out.as_str(), stopped), (text.as_str(), None), "{refs:?} in {text:?}");
                passed += 1;
            }
        }
    }
    assert!(found > 2000 && passed > 2000, "the cases are lopsided: {found} stopped, {passed} did not");
}

#[test]
fn named_cases() {
    type Case = (&'static [&'static str], &'static [&'static str], &'static str, Option<usize>);
    let cases: &[Case] = &[
        // no stop strings: everything passes
        (&[], &["ab", "c"], "abc", None),
        // at the very start
        (&["###"], &["###", "x"], "", Some(0)),
        // across three pieces, with text after it in the last
        (&["</s>"], &["hi<", "/", "s> more"], "hi", Some(0)),
        // an almost-stop is released whole, and a stop can begin inside it
        (&["aab"], &["aa", "aa", "b"], "aa", Some(0)),
        (&["</s>"], &["<", "/", "div>"], "</div>", None),
        // held text is released at the end
        (&["STOP"], &["a ST", "O"], "a STO", None),
        // the stop that is complete first wins, though another began earlier
        (&["abcd", "bc"], &["abcd"], "a", Some(1)),
        // complete at the same byte: the longest
        (&["c", "bc", "abc"], &["xab", "c"], "x", Some(2)),
        // a stop that is a beginning of another wins at once
        (&["ab", "abc"], &["abc"], "", Some(0)),
        // characters of several bytes
        (&["終わり"], &["話は終", "わ", "り。"], "話は", Some(0)),
        (&["è"], &["é", "è"], "é", Some(0)),
        // the same string twice: the first of the list
        (&["x", "x"], &["ax"], "a", Some(0)),
    ];
    for (stops, pieces, text, stopped) in cases {
        assert_eq!(run(stops, pieces), (text.to_string(), *stopped), "{stops:?} in {pieces:?}");
    }
}

#[test]
fn after_a_stop_nothing_comes() {
    let mut matcher = matcher(&["."]);
    assert_eq!(matcher.push("a.b"), Emit { text: "a", stopped: Some(0) });
    assert_eq!(matcher.held(), "");
    assert_eq!(matcher.push("c"), Emit { text: "", stopped: Some(0) });
    assert_eq!(matcher.finish(), "");
}

#[test]
fn empty_stop_strings_are_refused() {
    let error = StopMatcher::new(&["a".into(), String::new()]).unwrap_err();
    assert_eq!(error, StopError::Empty { index: 1 });
    assert!(error.to_string().starts_with("stop string 1 is empty"));
}

#[test]
fn repetitive_text_takes_linear_time() {
    // Each byte falls back along the whole stop string if the automaton is wrong: 10^11 steps instead of 10^6.
    let stop = format!("{}b", "a".repeat(100_000));
    let mut matcher = matcher(&[&stop]);
    let text = "a".repeat(1_000_000);
    let mut out = 0;
    for piece in text.as_bytes().chunks(3) {
        out += matcher.push(std::str::from_utf8(piece).unwrap()).text.len();
    }
    assert_eq!(out, 900_000);
}
