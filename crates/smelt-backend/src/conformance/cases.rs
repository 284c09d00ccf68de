//! The cases.

use super::build::Setup;
use super::{Case, Step, Tolerance};
use crate::{
    Activation, Attention, ExpertGate, Experts, Gating, Index, KvFormat, KvFormats, KvSpec, Mask, Moe, Op,
    Output, Projection, Rope, RopeStyle, States,
};
use smelt_quant::{FORMATS, Format};

/// What f32 arithmetic in another order may differ by.
const FLOAT: Tolerance = Tolerance::Largest(2e-5);
/// What a result may differ by where activations become int8: rounding one costs half a step of 127 at most, which over
/// many values comes to about a hundredth.
const INT8: Tolerance = Tolerance::RootMeanSquare(1.5e-2);
/// The same where they do twice in a row, before and after a product.
const INT8_TWICE: Tolerance = Tolerance::RootMeanSquare(3e-2);

fn f32_format() -> &'static Format {
    FORMATS[0]
}

/// Every case, in the order of [`crate::OP_NAMES`].
#[must_use]
pub fn cases() -> Vec<Case> {
    let families = [
        embed,
        rms_norm,
        layer_norm,
        matmul,
        rope,
        kv_write,
        attention,
        gated,
        activate,
        moe,
        expert_gate,
        add,
        rest,
    ];
    families.iter().flat_map(|family| family()).collect()
}

fn case(op: &'static str, what: impl std::fmt::Display, setup: Setup, tolerance: Tolerance) -> Case {
    Case { name: format!("{op}: {what}"), op, setup, tolerance }
}

fn embed() -> Vec<Case> {
    let of = |format: &'static Format| {
        let mut s = Setup::new(40, u64::from(format.ggml_type));
        let table = s.matrix(format, 40, 512, 1);
        let out = s.program.buffer(512);
        s.push(Op::Embed { table, index: Index::Token, out, scale: 3.5 });
        s.step(0, 17);
        case("embed", format.name, s.output(out), Tolerance::Largest(1e-6))
    };
    FORMATS.iter().map(|f| of(f)).chain([by_place()]).collect()
}

/// What BERT adds up for a token: its own embedding, its position's and its segment's.
fn by_place() -> Case {
    let mut s = Setup::new(40, 7);
    let out = s.input(70, 1.0);
    let part = s.program.buffer(70);
    for (index, rows) in [(Index::Position, 50), (Index::Segment, 2)] {
        let table = s.matrix(f32_format(), rows, 70, 1);
        s.push(Op::Embed { table, index, out: part, scale: 1.0 });
        s.push(Op::Add { input: part, out, scale: 1.0 });
    }
    s.mixed_step(&[(0, 0), (0, 1), (1, 7), (1, 8), (1, 9)]);
    s.steps[0].segments = vec![0, 1, 0, 0, 1];
    s.step(49, 1);
    case("embed", "tokens, positions and segments", s.output(out), FLOAT)
}

fn rms_norm() -> Vec<Case> {
    let of = |(width, group, scale, n): (usize, usize, f32, u32)| {
        let mut s = Setup::new(50, width as u64);
        let input = s.input(width, scale);
        let weight = s.vector(group, 1.0);
        let out = s.program.buffer(width);
        s.push(Op::RmsNorm { input, weight, out, eps: 1e-5 });
        s.push(Op::RmsNorm { input: out, weight, out, eps: 1e-6 });
        s.step(0, n);
        case("rms_norm", format_args!("width {width} in groups of {group}, ×{scale}"), s.output(out), FLOAT)
    };
    [(576, 576, 1.0, 33), (64, 64, 100.0, 1), (1024, 64, 1e-3, 5), (240, 80, 1.0, 7), (36, 12, 1.0, 3)]
        .map(of)
        .into()
}

fn layer_norm() -> Vec<Case> {
    let of = |(width, group, shift, n): (usize, usize, f32, u32)| {
        let mut s = Setup::new(50, width as u64);
        let input = s.input(width, 1.0);
        // Far from zero, where sums of squares would cancel.
        let bias = Some(s.vector(group, shift));
        let weight = s.vector(group, 1.0);
        let out = s.program.buffer(width);
        s.push(Op::LayerNorm { input, weight, bias, out, eps: 1e-5 });
        s.push(Op::LayerNorm { input: out, weight, bias: None, out, eps: 1e-12 });
        s.step(0, n);
        case("layer_norm", format_args!("width {width} in groups of {group}, +{shift}"), s.output(out), FLOAT)
    };
    [(384, 384, 0.0, 33), (64, 64, 3.0, 1), (1024, 64, -2.0, 5), (36, 12, 0.0, 3)].map(of).into()
}

fn matmul() -> Vec<Case> {
    let of = |(format, n_in, n_out, rows): (&'static Format, usize, usize, u32)| {
        let mut s = Setup::new(64, u64::from(format.ggml_type) * 100 + u64::from(rows));
        let input = s.input(n_in, 1.0);
        let bias = s.vector(n_out, 0.0);
        let (first, second) = (s.matrix(format, n_out, n_in, 1), s.matrix(format, 8, n_in, 1));
        let (out, other) = (s.program.buffer(n_out), s.program.buffer(8));
        let projections = vec![
            Projection { weight: first, bias: Some(bias), out },
            Projection { weight: second, bias: None, out: other },
        ];
        s.push(Op::MatMul { input, projections });
        s.step(0, rows);
        s.step(rows, 1);
        let float = format.activation == smelt_quant::Activation::F32;
        let what = format!("{} {n_out}×{n_in}, {rows} rows", format.name);
        case("matmul", what, s.output(out), if float { FLOAT } else { INT8 })
    };
    let shapes = [(512, 40, 1), (512, 40, 3), (1024, 67, 70), (256, 61, 9)];
    let mut list: Vec<Case> =
        FORMATS.iter().flat_map(|f| shapes.map(|(n_in, n_out, rows)| of((f, n_in, n_out, rows)))).collect();
    let odd = FORMATS.iter().filter(|f| f.block_len == 32).map(|f| of((f, 96, 33, 6)));
    list.extend(odd);
    list.push(of((f32_format(), 37, 11, 5)));
    list
}

fn rope() -> Vec<Case> {
    let of = |(style, head_dim, pairs, magnitude): (RopeStyle, usize, usize, f32)| {
        let mut s = Setup::new(50, head_dim as u64);
        let buffer = s.input(head_dim * 3, 1.0);
        let table = s.program.rope((0..pairs).map(|i| 10000f32.powf(-(i as f32) / pairs as f32)).collect());
        s.push(Op::Rope(Rope { buffer, table, style, head_dim, magnitude }));
        s.step(0, 20);
        s.step(20, 1);
        s.mixed_step(&[(0, 3), (1, 4000), (0, 4), (2, 77)]);
        let what = format!("{style:?}, {pairs} pairs of a head of {head_dim}, ×{magnitude}");
        case("rope", what, s.output(buffer), Tolerance::Largest(2e-4))
    };
    use RopeStyle::{Halves, Interleaved};
    [(Interleaved, 64, 32, 1.0), (Halves, 64, 32, 1.0), (Halves, 80, 16, 1.19), (Interleaved, 12, 3, 0.5)]
        .map(of)
        .into()
}

/// A cache is seen through attention: the window of 1 gives back the value just written.
fn kv_write() -> Vec<Case> {
    let of = |(formats, k, v): (KvFormats, usize, usize)| {
        let mut s = Setup::new(50, k as u64);
        let (q, key, value) = (s.input(2 * k, 1.0), s.input(2 * k, 1.0), s.input(2 * v, 1.0));
        let cache = s.program.cache(KvSpec { n_kv_heads: 2, k_head_dim: k, v_head_dim: v, formats });
        let out = s.program.buffer(2 * v);
        s.push(Op::KvWrite { k: key, v: value, cache });
        let (softcap, window, sinks) = (None, Some(1), None);
        let (n_heads, scale, mask) = (2, 1.0, Mask::Causal);
        s.push(Op::Attention(Attention { q, out, cache, n_heads, scale, softcap, mask, window, sinks }));
        s.step(0, 40);
        s.mixed_step(&[(1, 0), (0, 40), (1, 1), (2, 0)]);
        case(
            "kv_write",
            format_args!("{formats:?}, heads of {k} and {v}"),
            s.output(out),
            Tolerance::Largest(1e-6),
        )
    };
    let mut list = Vec::new();
    for k in KvFormat::ALL {
        let formats = KvFormat::ALL.map(|v| KvFormats { k, v });
        list.extend(formats.map(|formats| (formats, 64, 64)));
        list.extend([(k.into(), 32, 32), (k.into(), 24, 16), (k.into(), 80, 48)]);
    }
    list.into_iter().map(of).collect()
}

struct Shape {
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    formats: KvFormats,
    mask: Mask,
    softcap: Option<f32>,
    window: Option<usize>,
    sinks: bool,
}

fn attention_case(x: &Shape, what: &str, steps: impl Fn(&mut Setup)) -> Case {
    let mut s = Setup::new(60, (x.heads * x.head_dim) as u64);
    let q = s.input(x.heads * x.head_dim, 1.5);
    let (k, v) = (s.input(x.kv_heads * x.head_dim, 1.5), s.input(x.kv_heads * x.head_dim, 1.0));
    let (n_kv_heads, k_head_dim, v_head_dim) = (x.kv_heads, x.head_dim, x.head_dim);
    let cache = s.program.cache(KvSpec { n_kv_heads, k_head_dim, v_head_dim, formats: x.formats });
    let out = s.program.buffer(x.heads * x.head_dim);
    s.push(Op::KvWrite { k, v, cache });
    let scale = 1.0 / (x.head_dim as f32).sqrt();
    let (n_heads, softcap, mask, window) = (x.heads, x.softcap, x.mask, x.window);
    let sinks = x.sinks.then(|| s.vector(n_heads, 2.0));
    s.push(Op::Attention(Attention { q, out, cache, n_heads, scale, softcap, mask, window, sinks }));
    steps(&mut s);
    let Shape { heads, kv_heads, head_dim, formats, mask, softcap, window, sinks } = x;
    let name = format!(
        "{what}, {heads}/{kv_heads} heads of {head_dim}, {}-{}, {mask:?}, cap {softcap:?}, window {window:?}, sinks {sinks}",
        formats.k.name(),
        formats.v.name()
    );
    case("attention", name, s.output(out), Tolerance::Largest(1e-4))
}

fn attention() -> Vec<Case> {
    let formats = KvFormat::F32.into();
    let base = Shape {
        heads: 4,
        kv_heads: 2,
        head_dim: 64,
        formats,
        mask: Mask::Causal,
        softcap: None,
        window: None,
        sinks: false,
    };
    let shape = |heads, kv_heads, head_dim| Shape { heads, kv_heads, head_dim, ..base };
    let mut list = Vec::new();
    for head_dim in [16, 24, 64, 80, 96, 128, 256] {
        list.push(attention_case(&shape(4, 2, head_dim), "one step", |s| s.step(0, 70)));
    }
    let f16 = |window, softcap| Shape { formats: KvFormat::F16.into(), window, softcap, ..base };
    for window in [None, Some(1), Some(8), Some(33), Some(1000)] {
        for softcap in [None, Some(5.0)] {
            list.push(attention_case(&f16(window, softcap), "chunks then decode", |s| {
                s.step(0, 65);
                s.step(65, 32);
                s.step(97, 1);
                s.step(98, 1);
            }));
        }
    }
    list.push(attention_case(&shape(9, 3, 64), "several sequences", |s| {
        s.step(0, 50);
        s.mixed_step(&[(1, 0), (1, 1), (0, 50), (2, 0), (1, 2), (0, 51)]);
        s.mixed_step(&[(2, 1), (1, 3), (0, 52)]);
    }));
    list.push(attention_case(&shape(6, 1, 32), "long", |s| {
        (0..12).for_each(|i| s.step(i * 200, 200));
        s.step(2400, 1);
    }));
    list.push(attention_case(&shape(4, 4, 64), "no groups", |s| s.step(0, 3)));
    let full = |heads, head_dim| Shape { mask: Mask::Full, ..shape(heads, 2, head_dim) };
    for x in [full(2, 32), full(14, 24), full(4, 64)] {
        list.push(attention_case(&x, "whole texts", |s| {
            s.step(0, 200);
            let texts = [(0, 1), (1, 33), (2, 70)];
            s.mixed_step(
                &texts.iter().flat_map(|(text, n)| (0..*n).map(move |p| (*text, p))).collect::<Vec<_>>(),
            );
        }));
    }
    for (k, v) in
        [(KvFormat::Q8_0, KvFormat::Q8_0), (KvFormat::Q4_0, KvFormat::F16), (KvFormat::F16, KvFormat::Q4_0)]
    {
        for (head_dim, window) in [(64, Some(40)), (80, None), (256, None)] {
            let shape = Shape { formats: KvFormats { k, v }, head_dim, window, ..base };
            list.push(attention_case(&shape, "chunks then decode", |s| {
                s.step(0, 65);
                s.step(65, 3);
                s.step(68, 1);
            }));
        }
    }
    for window in [None, Some(20)] {
        let shape = Shape { sinks: true, heads: 14, window, ..base };
        list.push(attention_case(&shape, "chunks then decode", |s| {
            s.step(0, 40);
            s.step(40, 1);
            s.mixed_step(&[(1, 0), (0, 41)]);
        }));
    }
    list
}

fn gated() -> Vec<Case> {
    let of = |(activation, width, n): (Activation, usize, u32)| {
        let mut s = Setup::new(50, width as u64);
        let (gate, up) = (s.input(width, 4.0), s.input(width, 1.0));
        let out = s.program.buffer(width);
        s.push(Op::GatedActivation { gate, up, out, activation });
        s.push(Op::GatedActivation { gate: out, up, out, activation });
        s.step(0, n);
        case("gated_activation", format_args!("{activation:?}, width {width}"), s.output(out), FLOAT)
    };
    [
        (Activation::Silu, 1536, 1),
        (Activation::Silu, 37, 9),
        (Activation::GeluTanh, 640, 3),
        (Activation::GeluTanh, 5, 2),
        (Activation::Gelu, 70, 4),
    ]
    .map(of)
    .into()
}

fn activate() -> Vec<Case> {
    let of = |(activation, width, n): (Activation, usize, u32)| {
        let mut s = Setup::new(50, width as u64);
        let buffer = s.input(width, 3.0);
        s.push(Op::Activate { buffer, activation });
        s.step(0, n);
        case("activate", format_args!("{activation:?}, width {width}"), s.output(buffer), FLOAT)
    };
    [(Activation::Gelu, 1536, 40), (Activation::Gelu, 37, 1), (Activation::GeluTanh, 70, 3)].map(of).into()
}

fn moe() -> Vec<Case> {
    let of = |(format, n_experts, n_used, gating, rows): (&'static Format, usize, usize, Gating, u32)| {
        let mut s = Setup::new(50, n_experts as u64 + u64::from(rows));
        let (input, router) = (s.input(256, 1.0), s.input(n_experts, 1.0));
        let experts = Experts {
            gate: s.matrix(format, 512, 256, n_experts),
            up: s.matrix(format, 512, 256, n_experts),
            down: s.matrix(format, 256, 512, n_experts),
        };
        let out = s.program.buffer(256);
        let activation = if n_used == 1 { Activation::GeluTanh } else { Activation::Silu };
        s.push(Op::Moe(Moe { input, router, experts, out, n_used, gating, scale: 1.5, activation }));
        s.step(0, rows);
        s.step(rows, 1);
        let float = format.activation == smelt_quant::Activation::F32;
        let what = format!("{} {n_used} of {n_experts}, {gating:?}, {rows} rows", format.name);
        case("moe", what, s.output(out), if float { FLOAT } else { INT8_TWICE })
    };
    let mut list = vec![
        of((f32_format(), 8, 2, Gating::SoftmaxNormalized, 30)),
        of((f32_format(), 4, 4, Gating::Softmax, 3)),
        of((f32_format(), 6, 1, Gating::Softmax, 11)),
    ];
    let quantised = FORMATS.iter().filter(|f| f.block_len > 1);
    list.extend(quantised.map(|f| of((f, 5, 2, Gating::SoftmaxNormalized, 9))));
    list
}

fn expert_gate() -> Vec<Case> {
    let mut s = Setup::new(50, 1);
    let (buffer, gate) = (s.input(70, 1.0), s.input(1, 3.0));
    s.push(Op::ExpertGate(ExpertGate { buffer, gate }));
    s.step(0, 19);
    vec![case("expert_gate", "19 rows", s.output(buffer), FLOAT)]
}

fn add() -> Vec<Case> {
    let of = |scale: f32| {
        let mut s = Setup::new(50, 3);
        let (input, out) = (s.input(77, 1.0), s.input(77, 1.0));
        s.push(Op::Add { input, out, scale });
        s.step(0, 9);
        case("add", format_args!("×{scale}"), s.output(out), FLOAT)
    };
    vec![of(1.0), of(0.22)]
}

fn rest() -> Vec<Case> {
    let of = |op: &'static str, make: fn(crate::Buffer) -> Op| {
        let mut s = Setup::new(50, 5);
        let buffer = s.input(83, 20.0);
        s.push(make(buffer));
        s.step(0, 5);
        case(op, "all rows", s.output(buffer), FLOAT)
    };
    let mut s = Setup::new(50, 6);
    let input = s.input(40, 1.0);
    let out = s.program.logit_buffer(40);
    s.push(Op::GatherLogitRows { input, out });
    s.push(Op::Scale { buffer: out, factor: -0.5 });
    let rows = (0..9).map(|i| (0, i, i * 5)).collect();
    s.steps.push(Step { rows, logit_rows: vec![0, 3, 4, 8], output_rows: 4, ..Step::default() });
    vec![
        of("scale", |buffer| Op::Scale { buffer, factor: 0.125 }),
        of("soft_cap", |buffer| Op::SoftCap { buffer, cap: 30.0 }),
        case("gather_logit_rows", "four of nine rows", s.output(out), FLOAT),
        both_ends(),
    ]
}

/// A program with two ends, and steps that want now one, now the other.
fn both_ends() -> Case {
    let mut s = Setup::new(50, 8);
    let x = s.input(48, 1.0);
    let weight = s.vector(48, 1.0);
    s.push(Op::Scale { buffer: x, factor: 3.0 });
    let rows = s.program.logit_buffer(48);
    s.push(Op::GatherLogitRows { input: x, out: rows });
    s.push(Op::Scale { buffer: rows, factor: -1.0 });
    let norm = Op::RmsNorm { input: x, weight, out: x, eps: 1e-5 };
    s.program.states = Some(States { after: 2, ops: vec![norm], output: x });
    for output in [Output::Logits, Output::States, Output::Logits] {
        s.step(0, 6);
        if let Some(step) = s.steps.last_mut() {
            step.output = output;
            step.output_rows = if output == Output::Logits { 1 } else { 6 };
        }
    }
    case("gather_logit_rows", "logits, then states, then logits", s.output(rows), FLOAT)
}
