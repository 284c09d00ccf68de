//! Each stage, and the whole chain, against the definitions.

use fastrand::Rng;
use smelt_engine::sampler::{LogProbs, SamplerSettings, Stage, top_logprobs};

use super::{distribution, random_logits, reference};

/// Settings with some value of one stage.
fn settings_of(stage: Stage, rng: &mut Rng) -> SamplerSettings {
    let mut s = SamplerSettings::neutral();
    match stage {
        Stage::TopNSigma => s.top_n_sigma = rng.f32() * 3.0 + 0.01,
        Stage::TopK => s.top_k = rng.u32(1..700),
        Stage::Typical => s.typical_p = rng.f32() * 0.999 + 0.0005,
        Stage::TopP => s.top_p = rng.f32(),
        Stage::MinP => s.min_p = rng.f32().powi(3),
        Stage::Xtc => (s.xtc_probability, s.xtc_threshold) = (1.0, rng.f32() * 0.5),
        Stage::Temperature => {
            s.temperature = rng.f32() * 2.0 + 0.05;
            if rng.bool() {
                (s.dynatemp_range, s.dynatemp_exponent) = (rng.f32() * 1.5, rng.f32() * 2.0 + 0.1);
            }
        }
        // Has nothing to set.
        Stage::Infill => {}
    }
    s
}

#[track_caller]
fn check(settings: &SamplerSettings, logits: &[f32]) {
    let got = distribution(settings.clone(), logits, &[]).unwrap();
    let want = reference::distribution(settings, logits);
    // Which tokens stay is exact; tokens that a small temperature makes equal in f32 may swap places.
    let ids = |ids: &mut dyn Iterator<Item = u32>| {
        let mut ids: Vec<u32> = ids.collect();
        ids.sort_unstable();
        ids
    };
    assert_eq!(ids(&mut got.iter().map(|t| t.0)), ids(&mut want.iter().map(|t| t.0)), "{settings:?}");
    for ((_, got), (_, want)) in got.iter().zip(&want) {
        assert!((f64::from(*got) - want).abs() < 2e-6, "{got} instead of {want} with {settings:?}");
    }
}

fn random_case(rng: &mut Rng) -> Vec<f32> {
    let len = if rng.u8(..8) == 0 { rng.usize(1000..3000) } else { rng.usize(1..300) };
    let spread = [0.1, 1.0, 3.0, 10.0][rng.usize(..4)];
    let mut logits = random_logits(rng, len, spread, false);
    if rng.bool() {
        for _ in 0..len / 3 {
            logits[rng.usize(1..len)] = f32::NEG_INFINITY;
        }
    }
    logits
}

#[test]
fn each_stage_equals_its_definition() {
    for stage in Stage::DEFAULT_CHAIN {
        let mut rng = Rng::with_seed(1);
        for _ in 0..700 {
            let settings = settings_of(stage, &mut rng);
            check(&settings, &random_case(&mut rng));
        }
    }
}

#[test]
fn equal_logits_stay_in_the_order_of_their_ids() {
    for stage in [Stage::TopK, Stage::TopP, Stage::TopNSigma] {
        let mut rng = Rng::with_seed(2);
        for _ in 0..700 {
            let mut settings = settings_of(stage, &mut rng);
            // A sum of equal probabilities must not meet the limit exactly, where rounding decides.
            settings.top_p = settings.top_p.max(1e-6);
            let len = rng.usize(1..2500);
            check(&settings, &random_logits(&mut rng, len, 1.5, true));
        }
    }
}

#[test]
fn the_chain_equals_its_definitions_in_any_order() {
    let mut rng = Rng::with_seed(3);
    for _ in 0..2000 {
        let mut s =
            SamplerSettings { xtc_probability: 1.0, xtc_threshold: 0.1, ..SamplerSettings::default() };
        (s.top_k, s.top_p, s.typical_p) = (rng.u32(1..80), 0.5 + rng.f32() * 0.49, 0.7 + rng.f32() * 0.29);
        (s.min_p, s.top_n_sigma) = (rng.f32() * 0.1, 1.0 + rng.f32() * 2.0);
        // The temperature rounds logits to f32, so only a last one leaves the choices of the others exact.
        rng.shuffle(&mut s.chain[..6]);
        s.chain.truncate(rng.usize(3..=7));
        check(&s, &random_case(&mut rng));
    }
}

#[test]
fn settings_that_are_off_leave_the_softmax() {
    let mut rng = Rng::with_seed(4);
    for _ in 0..100 {
        check(&SamplerSettings::neutral(), &random_case(&mut rng));
    }
}

#[test]
fn xtc_acts_as_often_as_it_should() {
    let logits = [2.0, 2.0, 2.0, 0.0];
    let settings = SamplerSettings {
        xtc_probability: 0.3,
        xtc_threshold: 0.2,
        seed: Some(5),
        ..SamplerSettings::neutral()
    };
    let mut sampler = smelt_engine::sampler::Sampler::new(settings, 4, &[]).unwrap();
    let mut acted = 0;
    for _ in 0..10_000 {
        // Of the three tokens over the threshold only the last stays when it acts.
        acted += u32::from(sampler.distribution(&mut logits.clone()).unwrap().len() == 2);
        sampler.sample(&mut logits.clone()).unwrap();
    }
    // 4.4 standard deviations
    assert!((2800..3200).contains(&acted), "{acted} of 10000");
}

#[test]
fn logprobs_are_those_of_the_definition() {
    let mut rng = Rng::with_seed(6);
    for case in 0..500 {
        let len = rng.usize(1..2000);
        let logits = random_logits(&mut rng, len, 3.0, case % 2 == 0);
        let tokens = reference::tokens(&logits);
        let p = reference::softmax(&tokens);
        let n = rng.usize(..50);
        let top = top_logprobs(&logits, n).unwrap();
        assert_eq!(top.len(), n.min(len));
        let all = LogProbs::new(&logits).unwrap();
        for (&(token, logprob), (&(id, _), p)) in top.iter().zip(tokens.iter().zip(&p)) {
            assert_eq!(token, id);
            assert!((f64::from(logprob) - p.ln()).abs() < 1e-5);
            assert_eq!(all.of(token), Some(logprob));
        }
        assert_eq!(all.of(len as u32), None);
    }
    let masked = [0.0, f32::NEG_INFINITY, 0.0];
    assert_eq!(LogProbs::new(&masked).unwrap().of(1), Some(f32::NEG_INFINITY));
    assert_eq!(top_logprobs(&masked, 9).unwrap().len(), 2);
    assert!(top_logprobs(&[f32::NAN], 1).is_err());
    assert!(top_logprobs(&[f32::NEG_INFINITY], 1).is_err());
}
