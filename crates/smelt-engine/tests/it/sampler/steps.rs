//! Whole steps: draws, reproducibility, mirostat, damaged logits, refused settings.

use std::collections::BTreeMap;

use fastrand::Rng;
use smelt_engine::sampler::{Mirostat, Named, SampleError, Sampler, SamplerSettings, Stage};

use super::random_logits;

fn seeded(settings: SamplerSettings, vocab_size: usize) -> Sampler {
    Sampler::new(SamplerSettings { seed: Some(42), ..settings }, vocab_size, &[]).unwrap()
}

fn tokens(sampler: &mut Sampler, logits: &[f32], n: usize) -> Vec<u32> {
    let mut row = logits.to_vec();
    (0..n).map(|_| sampler.sample(&mut row).unwrap()).collect()
}

#[test]
fn draws_follow_the_distribution() {
    let logits = random_logits(&mut Rng::with_seed(1), 200, 2.0, false);
    let all = [SamplerSettings::default(), SamplerSettings { top_k: 0, ..SamplerSettings::default() }];
    let typical = SamplerSettings { typical_p: 0.6, temperature: 1.3, ..SamplerSettings::neutral() };
    for settings in all.into_iter().chain([typical]) {
        let mut sampler = seeded(settings, logits.len());
        let expected = sampler.distribution(&mut logits.clone()).unwrap();
        let n = 20_000;
        let mut counts = BTreeMap::new();
        for token in tokens(&mut sampler, &logits, n) {
            *counts.entry(token).or_insert(0u32) += 1;
        }
        let mut chi_square = 0.0;
        for (token, p) in &expected {
            let mean = f64::from(*p) * n as f64;
            chi_square += (f64::from(counts.remove(token).unwrap_or(0)) - mean).powi(2) / mean;
        }
        assert!(counts.is_empty(), "tokens outside the distribution: {counts:?}");
        // Mean and four standard deviations of chi-square.
        let degrees = expected.len() as f64 - 1.0;
        assert!(
            degrees > 8.0 && chi_square < degrees + 4.0 * (2.0 * degrees).sqrt(),
            "{chi_square} for {degrees}"
        );
    }
}

#[test]
fn greedy_takes_the_lowest_of_the_greatest() {
    let mut rng = Rng::with_seed(2);
    let mut sampler = seeded(SamplerSettings::greedy(), 300);
    for _ in 0..500 {
        let logits = random_logits(&mut rng, 300, 2.0, true);
        let max = logits.iter().copied().fold(f32::MIN, f32::max);
        let want = logits.iter().position(|l| *l == max).unwrap() as u32;
        assert_eq!(sampler.sample(&mut logits.clone()), Ok(want));
        assert_eq!(sampler.distribution(&mut logits.clone()).unwrap(), [(want, 1.0)]);
    }
    let settings = SamplerSettings {
        logit_bias: vec![(2, 1.0)],
        presence_penalty: 2.0,
        penalty_last_n: Some(1),
        ..SamplerSettings::greedy()
    };
    let mut sampler = seeded(settings, 4);
    assert_eq!(sampler.sample(&mut [-0.0, 0.0, 0.5, 0.0]), Ok(2));
    sampler.accept(2);
    assert_eq!(sampler.sample(&mut [-0.0, 0.0, 0.5, 0.0]), Ok(0));
}

#[test]
fn the_same_seed_gives_the_same_tokens() {
    let logits = random_logits(&mut Rng::with_seed(3), 1000, 2.0, false);
    let first = tokens(&mut seeded(SamplerSettings::default(), 1000), &logits, 200);
    assert_eq!(tokens(&mut seeded(SamplerSettings::default(), 1000), &logits, 200), first);

    // A random seed is reported, and works.
    let mut random = Sampler::new(SamplerSettings::default(), 1000, &[]).unwrap();
    let other = Sampler::new(SamplerSettings::default(), 1000, &[]).unwrap();
    assert_ne!(random.seed(), other.seed());
    let settings = SamplerSettings { seed: Some(random.seed()), ..SamplerSettings::default() };
    let mut again = Sampler::new(settings, 1000, &[]).unwrap();
    assert_eq!(tokens(&mut random, &logits, 100), tokens(&mut again, &logits, 100));

    // A clone goes on as the original, which it does not disturb; neither does looking at the distribution.
    let mut sampler = seeded(SamplerSettings::default(), 1000);
    tokens(&mut sampler, &logits, 50);
    let mut clone = sampler.clone();
    assert_eq!(tokens(&mut clone, &logits, 150), first[50..]);
    sampler.distribution(&mut logits.clone()).unwrap();
    assert_eq!(tokens(&mut sampler, &logits, 150), first[50..]);
}

#[test]
fn the_generator_never_changes() {
    // Draws of 1000 equal tokens are the generator's output itself. A change here breaks every seed in use.
    let mut sampler = seeded(SamplerSettings::neutral(), 1000);
    assert_eq!(tokens(&mut sampler, &[0.0; 1000], 8), [239, 527, 375, 524, 370, 928, 440, 89]);
}

#[test]
fn every_step_uses_as_many_random_numbers() {
    let logits = random_logits(&mut Rng::with_seed(4), 100, 1.0, false);
    let plain = tokens(&mut seeded(SamplerSettings::neutral(), 100), &logits, 100);
    // XTC that practically never acts, and steps with one candidate in between, shift nothing.
    let xtc = SamplerSettings { xtc_probability: 1e-9, xtc_threshold: 0.0, ..SamplerSettings::neutral() };
    assert_eq!(tokens(&mut seeded(xtc, 100), &logits, 100), plain);
    let mut sampler = seeded(SamplerSettings::neutral(), 100);
    let mut only = [f32::NEG_INFINITY; 100];
    only[7] = 0.0;
    for &want in plain.chunks(2).flat_map(<[u32]>::last) {
        assert_eq!(sampler.sample(&mut only.clone()), Ok(7));
        assert_eq!(sampler.sample(&mut logits.clone()), Ok(want));
    }
}

#[test]
fn mirostat_reaches_its_surprise() {
    for tau in [2.0, 4.0, 6.0] {
        let settings =
            SamplerSettings { mirostat: Some(Mirostat { tau, eta: 0.1 }), ..SamplerSettings::default() };
        let settings = SamplerSettings { temperature: 1.0, ..settings };
        let mut sampler = seeded(settings, 2000);
        let mut rng = Rng::with_seed(5);
        let (mut sum, mut n) = (0.0, 0);
        for step in 0..2500 {
            // Close to Zipf's law, whose untruncated entropy is about 9 bits here.
            let noise = random_logits(&mut rng, 2000, 0.5, false);
            let mut logits: Vec<f32> =
                noise.iter().zip(1..).map(|(x, rank)| x - (rank as f32).ln() * 0.8).collect();
            let expected = sampler.distribution(&mut logits).unwrap();
            let token = sampler.sample(&mut logits).unwrap();
            let (_, p) = expected.iter().find(|(id, _)| *id == token).unwrap();
            if step >= 500 {
                sum -= f64::from(p.log2());
                n += 1;
            }
        }
        let mean = sum / f64::from(n);
        assert!((mean - f64::from(tau)).abs() < 0.05, "{mean} bits instead of {tau}");
    }
    // A flat model has more surprise per token than any threshold allows: the likeliest stays.
    let strict =
        SamplerSettings { mirostat: Some(Mirostat { tau: 0.1, eta: 0.1 }), ..SamplerSettings::default() };
    assert_eq!(seeded(strict, 64).sample(&mut [0.0; 64]), Ok(0));
}

#[test]
fn damaged_logits_are_errors() {
    let mirostat = SamplerSettings { mirostat: Some(Mirostat::default()), ..SamplerSettings::default() };
    for settings in
        [SamplerSettings::greedy(), SamplerSettings::neutral(), SamplerSettings::default(), mirostat]
    {
        let mut sampler = seeded(settings, 700);
        for value in [f32::NAN, -f32::NAN, f32::INFINITY] {
            for at in [0, 31, 32, 699] {
                let mut logits = vec![1.0; 700];
                logits[at] = value;
                logits[at.max(1) - 1] = f32::NEG_INFINITY;
                logits[at] = value;
                match sampler.sample(&mut logits) {
                    Err(SampleError::NotFinite { token, value: got }) => {
                        assert_eq!((token as usize, got.to_bits()), (at, value.to_bits()));
                    }
                    other => panic!("{other:?} for {value} at {at}"),
                }
            }
        }
        assert_eq!(sampler.sample(&mut [f32::NEG_INFINITY; 700]), Err(SampleError::AllMasked));
        let error = sampler.sample(&mut [0.0; 3]).unwrap_err();
        assert_eq!(error, SampleError::WrongLength { got: 3, vocab_size: 700 });
    }
    assert_eq!(seeded(SamplerSettings::greedy(), 0).sample(&mut []), Err(SampleError::AllMasked));
    let banned = SamplerSettings { logit_bias: vec![(0, f32::NEG_INFINITY)], ..SamplerSettings::default() };
    assert_eq!(seeded(banned, 1).sample(&mut [0.0]), Err(SampleError::AllMasked));
}

#[test]
fn extreme_but_finite_logits_work() {
    let everything = SamplerSettings {
        logit_bias: vec![(0, f32::MAX), (1, f32::MIN), (2, 1.0)],
        repeat_penalty: 0.01,
        presence_penalty: -100.0,
        dry_multiplier: 1.0,
        typical_p: 0.9,
        top_n_sigma: 1.0,
        xtc_probability: 0.5,
        dynatemp_range: 0.5,
        ..SamplerSettings::default()
    };
    let tiny = SamplerSettings { temperature: f32::MIN_POSITIVE, ..SamplerSettings::neutral() };
    let mirostat = SamplerSettings { mirostat: Some(Mirostat::default()), ..SamplerSettings::default() };
    let all = [everything, tiny, mirostat, SamplerSettings::greedy(), SamplerSettings::neutral()];
    let values = [f32::MAX, f32::MIN, f32::NEG_INFINITY, f32::MIN_POSITIVE, -0.0, 0.0, 1.0, 1e30, -1e30];
    let mut rng = Rng::with_seed(6);
    for settings in all {
        let mut sampler =
            Sampler::new(SamplerSettings { seed: Some(1), ..settings }, 6, &[0, 1, 2, 0, 1, 2, 0, 1])
                .unwrap();
        for _ in 0..2000 {
            let mut logits: Vec<f32> = (0..6).map(|_| values[rng.usize(..values.len())]).collect();
            logits[5] = 0.0;
            let token = sampler.sample(&mut logits.clone()).unwrap();
            assert!(logits[token as usize] > f32::NEG_INFINITY, "{token} is masked in {logits:?}");
            sampler.accept(token);
        }
    }
    // Steps that differ by less than a temperature of 1e-38 can show still choose the greatest.
    let cold = SamplerSettings { temperature: f32::MIN_POSITIVE, ..SamplerSettings::neutral() };
    assert_eq!(seeded(cold, 3).sample(&mut [f32::MIN, 0.0, f32::MAX]), Ok(2));
}

#[test]
fn settings_out_of_range_are_named() {
    type Change = fn(&mut SamplerSettings);
    let cases: &[(&str, Change)] = &[
        ("temperature", |s| s.temperature = -0.1),
        ("temperature", |s| s.temperature = f32::NAN),
        ("temperature", |s| s.temperature = f32::INFINITY),
        ("dynatemp_range", |s| s.dynatemp_range = -1.0),
        ("dynatemp_exponent", |s| s.dynatemp_exponent = 0.0),
        ("top_n_sigma", |s| s.top_n_sigma = -1.0),
        ("typical_p", |s| s.typical_p = 0.0),
        ("top_p", |s| s.top_p = 1.01),
        ("min_p", |s| s.min_p = -0.01),
        ("xtc_probability", |s| s.xtc_probability = 2.0),
        ("xtc_threshold", |s| s.xtc_threshold = -1.0),
        ("repeat_penalty", |s| s.repeat_penalty = 0.0),
        ("presence_penalty", |s| s.presence_penalty = 101.0),
        ("frequency_penalty", |s| s.frequency_penalty = f32::NEG_INFINITY),
        ("dry_multiplier", |s| s.dry_multiplier = -1.0),
        ("dry_base", |s| s.dry_base = 0.9),
        ("mirostat.tau", |s| s.mirostat = Some(Mirostat { tau: 0.0, eta: 0.1 })),
        ("mirostat.eta", |s| s.mirostat = Some(Mirostat { tau: 5.0, eta: 1.5 })),
    ];
    for (name, change) in cases {
        let mut settings = SamplerSettings::default();
        assert_eq!(settings.validate(), Ok(()));
        change(&mut settings);
        match settings.validate() {
            Err(SampleError::Setting { field, .. }) => assert_eq!(field, *name),
            other => panic!("{other:?} for {name}"),
        }
        assert!(Sampler::new(settings, 10, &[]).is_err());
    }
    let error = SamplerSettings { top_p: 1.5, ..SamplerSettings::default() }.validate().unwrap_err();
    assert_eq!(
        error.to_string(),
        "sampler setting `top_p` is 1.5, which is not between 0 and 1; 1 switches it off"
    );
}

#[test]
fn lists_in_the_settings_are_checked() {
    let settings = |bias: f32| SamplerSettings { logit_bias: vec![(3, bias)], ..SamplerSettings::default() };
    assert!(matches!(settings(f32::NAN).validate(), Err(SampleError::Bias { token: 3, .. })));
    assert!(matches!(settings(f32::INFINITY).validate(), Err(SampleError::Bias { token: 3, .. })));
    assert!(Sampler::new(settings(1.0), 4, &[]).is_ok());
    let error = Sampler::new(settings(1.0), 3, &[]).unwrap_err();
    assert_eq!(error, SampleError::UnknownToken { field: "logit_bias", token: 3, vocab_size: 3 });
    let breakers = SamplerSettings { dry_breakers: vec![vec![1, 9]].into(), ..SamplerSettings::default() };
    let error = Sampler::new(breakers, 9, &[]).unwrap_err();
    assert_eq!(error, SampleError::UnknownToken { field: "dry_breakers", token: 9, vocab_size: 9 });
    let chain = vec![Stage::TopK, Stage::MinP, Stage::TopK];
    let error = SamplerSettings { chain, ..SamplerSettings::default() }.validate().unwrap_err();
    assert_eq!(error, SampleError::RepeatedStage { stage: "top_k" });
    for named in Named::all() {
        assert_eq!(Named::of(named.name()), Some(named));
    }
    for (name, stage) in
        [("top-k", Stage::TopK), ("TypP", Stage::Typical), ("temp", Stage::Temperature), ("i", Stage::Infill)]
    {
        assert_eq!(Named::of(name), Some(Named::Stage(stage)));
    }
    assert_eq!(Named::of("magic"), None);
}
