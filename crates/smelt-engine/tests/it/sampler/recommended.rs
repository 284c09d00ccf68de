//! What a file recommends: read whatever it says, followed only where it makes sense.

use smelt_checkpoint::{Metadata, Value};
use smelt_engine::sampler::{Recommended, SamplerSettings, Stage};
use std::path::Path;

fn read(keys: &[(&str, Value)]) -> Recommended {
    let keys = keys.iter().map(|(end, value)| (format!("general.sampling.{end}"), value.clone()));
    Recommended::read(&Metadata::new(Path::new("m.gguf"), keys.collect()))
}

fn text(text: &str) -> Value {
    Value::String(text.to_owned())
}

#[test]
fn every_key_is_followed_unless_somebody_chose() {
    let all = read(&[
        ("temp", Value::F32(0.6)),
        ("top_k", Value::I32(20)),
        ("top_p", Value::F64(0.9)),
        ("min_p", text("0.02")),
        ("xtc_probability", Value::F32(0.5)),
        ("xtc_threshold", Value::F32(0.2)),
        ("penalty_last_n", Value::I32(-1)),
        ("penalty_repeat", Value::F32(1.1)),
        ("mirostat", Value::I32(2)),
        ("mirostat_tau", Value::F32(4.0)),
        ("mirostat_eta", Value::F32(0.2)),
        ("sequence", text("penalties;dry;temp;typ_p;top_k")),
    ]);
    assert_eq!((all.settings.len(), all.refused.len()), (12, 0), "{:?}", all.refused);
    let mut settings = SamplerSettings::default();
    all.apply(&mut settings, |setting| matches!(setting, "top_k" | "repeat_penalty"));
    let default = SamplerSettings::default();
    assert_eq!((settings.temperature, settings.top_p, settings.min_p), (0.6, 0.9, 0.02));
    assert_eq!((settings.top_k, settings.repeat_penalty), (default.top_k, default.repeat_penalty));
    assert_eq!((settings.xtc_probability, settings.xtc_threshold), (0.5, 0.2));
    assert_eq!(settings.penalty_last_n, None);
    assert_eq!(settings.mirostat.map(|m| (m.tau, m.eta)), Some((4.0, 0.2)));
    assert_eq!(settings.chain, [Stage::Temperature, Stage::Typical, Stage::TopK]);
    let shown: Vec<String> = all.settings.iter().map(ToString::to_string).collect();
    assert_eq!(
        (shown[0].as_str(), shown[11].as_str()),
        ("temperature 0.6", "chain temperature;typical_p;top_k")
    );
}

#[test]
fn what_makes_no_sense_is_left_out_and_named() {
    let all = read(&[
        ("temp", Value::F32(f32::NAN)),
        ("top_p", Value::F32(2.0)),
        ("min_p", Value::Bool(true)),
        ("mirostat", Value::U32(1)),
        ("sequence", text("top_k;nonsense")),
        ("top_k", Value::I64(-5)),
    ]);
    assert_eq!(all.settings.len(), 1);
    for (key, reason) in [
        ("temp", "no number"),
        ("top_p", "between 0 and 1"),
        ("min_p", "no number but a bool"),
        ("mirostat", "mirostat 1"),
        ("sequence", "\"nonsense\""),
    ] {
        let said =
            |text: &&String| text.contains(&format!("general.sampling.{key} ")) && text.contains(reason);
        assert!(all.refused.iter().any(|text| said(&text)), "{key}: {:?}", all.refused);
    }
    let mut settings = SamplerSettings::default();
    all.apply(&mut settings, |_| false);
    assert_eq!(settings, SamplerSettings { top_k: 0, ..SamplerSettings::default() });
}
