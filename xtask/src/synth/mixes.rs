//! Which tensor gets which format in a file of a given kind.
//!
//! The rules are those of llama.cpp's quantiser (`llama_tensor_get_type_impl` in `src/llama-quant.cpp`) without an
//! importance matrix, for models with four or more query heads a key head, which all shapes have.

use anyhow::{Context, Result};
use smelt_quant::Format;

use super::shapes::{Role, Tensor};

/// What tensors of one role get.
#[derive(Clone, Copy)]
enum Rule {
    /// The file's main format.
    Main,
    All(&'static str),
    /// The first layers get one format, the others another.
    First(usize, &'static str, &'static str),
    /// The same for the first `1 / n` of the layers.
    FirstPart(usize, &'static str, &'static str),
    /// Some layers at both ends and every third one between them get the format.
    Some(&'static str),
}

/// A kind of file.
struct Mix {
    name: &'static str,
    main: &'static str,
    value: Rule,
    down: Rule,
    attention_output: Rule,
    query_or_key: Rule,
    /// Embeddings that are not the output too.
    embedding: Rule,
    output: Rule,
}

const fn mix(name: &'static str, main: &'static str) -> Mix {
    Mix {
        name,
        main,
        value: Rule::Main,
        down: Rule::Main,
        attention_output: Rule::Main,
        query_or_key: Rule::Main,
        embedding: Rule::Main,
        output: Rule::All("Q6_K"),
    }
}

/// Two bits and less: the tensors that suffer most get more.
const fn low(name: &'static str, down: &'static str, attention_output: Rule, embedding: &'static str) -> Mix {
    Mix {
        value: Rule::All("Q4_K"),
        down: Rule::FirstPart(8, down, name),
        attention_output,
        embedding: Rule::All(embedding),
        output: Rule::All("Q5_K"),
        ..mix(name, name)
    }
}

const fn whole(name: &'static str) -> Mix {
    Mix { output: Rule::Main, ..mix(name, name) }
}

const fn ternary(name: &'static str) -> Mix {
    Mix { embedding: Rule::All("Q4_K"), ..mix(name, name) }
}

/// Four bits with a table: the first layers keep more.
const fn table4(name: &'static str) -> Mix {
    Mix { value: Rule::All("Q5_K"), down: Rule::FirstPart(8, "Q5_K", name), ..mix(name, name) }
}

static MIXES: &[Mix] = &[
    whole("F32"),
    whole("F16"),
    whole("BF16"),
    whole("Q8_0"),
    mix("Q4_0", "Q4_0"),
    mix("Q4_1", "Q4_1"),
    mix("Q5_0", "Q5_0"),
    mix("Q5_1", "Q5_1"),
    Mix {
        value: Rule::All("Q4_K"),
        down: Rule::All("Q3_K"),
        attention_output: Rule::All("Q3_K"),
        ..mix("Q2_K", "Q2_K")
    },
    mix("Q3_K_S", "Q3_K"),
    Mix {
        value: Rule::First(2, "Q5_K", "Q4_K"),
        down: Rule::FirstPart(16, "Q5_K", "Q4_K"),
        attention_output: Rule::All("Q4_K"),
        ..mix("Q3_K_M", "Q3_K")
    },
    Mix {
        value: Rule::First(4, "Q5_K", "Q4_K"),
        down: Rule::FirstPart(8, "Q5_K", "Q4_K"),
        ..mix("Q4_K_S", "Q4_K")
    },
    Mix { value: Rule::Some("Q6_K"), down: Rule::Some("Q6_K"), ..mix("Q4_K_M", "Q4_K") },
    mix("Q5_K_S", "Q5_K"),
    Mix { value: Rule::Some("Q6_K"), down: Rule::Some("Q6_K"), ..mix("Q5_K_M", "Q5_K") },
    mix("Q6_K", "Q6_K"),
    table4("IQ4_NL"),
    table4("IQ4_XS"),
    Mix { value: Rule::All("Q4_K"), ..mix("IQ3_S", "IQ3_S") },
    Mix {
        value: Rule::All("Q4_K"),
        down: Rule::FirstPart(8, "Q4_K", "Q3_K"),
        attention_output: Rule::All("IQ3_S"),
        query_or_key: Rule::All("IQ2_S"),
        embedding: Rule::All("IQ3_S"),
        output: Rule::All("Q5_K"),
        ..mix("IQ3_XXS", "IQ3_XXS")
    },
    low("IQ2_S", "IQ3_S", Rule::All("IQ3_S"), "IQ3_S"),
    low("IQ2_XS", "Q2_K", Rule::Main, "Q2_K"),
    low("IQ2_XXS", "Q2_K", Rule::Main, "Q2_K"),
    low("IQ1_M", "Q2_K", Rule::All("IQ2_XXS"), "Q2_K"),
    low("IQ1_S", "Q2_K", Rule::All("IQ2_XXS"), "Q2_K"),
    ternary("TQ1_0"),
    ternary("TQ2_0"),
    // llama.cpp gives these to experts only; here the dense models have them too, so that their kernels are measured.
    Mix {
        value: Rule::All("Q8_0"),
        attention_output: Rule::All("Q8_0"),
        query_or_key: Rule::All("Q8_0"),
        embedding: Rule::All("Q8_0"),
        output: Rule::All("Q8_0"),
        ..mix("MXFP4", "MXFP4")
    },
    mix("NVFP4", "NVFP4"),
];

/// The names of the kinds of files.
pub(crate) fn names() -> Vec<&'static str> {
    MIXES.iter().map(|mix| mix.name).collect()
}

/// Whether layer `layer` of `layers` is one that gets more bits.
fn gets_more(layer: usize, layers: usize) -> bool {
    let eighth = layers / 8;
    layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2
}

/// The format of a tensor in a file of kind `kind` with `layers` layers.
pub(super) fn format_of(kind: &str, tensor: &Tensor, layers: usize) -> Result<&'static Format> {
    let mix = MIXES.iter().find(|mix| mix.name == kind);
    let mix = mix.with_context(|| format!("no such format: {kind}"))?;
    let rule = match tensor.role {
        Role::Ones | Role::Router => Rule::All("F32"),
        Role::Embedding => mix.embedding,
        Role::Output => mix.output,
        Role::QueryOrKey => mix.query_or_key,
        Role::Value => mix.value,
        Role::AttentionOutput => mix.attention_output,
        Role::Down => mix.down,
        Role::GateOrUp => Rule::Main,
    };
    let name = match rule {
        Rule::Main => mix.main,
        Rule::All(format) => format,
        Rule::First(count, first, rest) => {
            if tensor.layer < count {
                first
            } else {
                rest
            }
        }
        Rule::FirstPart(parts, first, rest) => {
            if tensor.layer < layers / parts {
                first
            } else {
                rest
            }
        }
        Rule::Some(format) => {
            if gets_more(tensor.layer, layers) {
                format
            } else {
                mix.main
            }
        }
    };
    smelt_quant::by_name(name).with_context(|| format!("smelt-quant has no {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_names_a_format() {
        let roles = [
            Role::Embedding,
            Role::Output,
            Role::QueryOrKey,
            Role::Value,
            Role::AttentionOutput,
            Role::Down,
            Role::GateOrUp,
        ];
        for kind in names() {
            for role in roles {
                for layer in 0..32 {
                    let tensor = Tensor { name: String::new(), shape: Vec::new(), role, layer };
                    format_of(kind, &tensor, 32).expect("a known format");
                }
            }
        }
    }

    #[test]
    fn sixteen_layers_of_q4_k_m_are_as_llama_cpp_makes_them() {
        let more: Vec<usize> = (0..16).filter(|layer| gets_more(*layer, 16)).collect();
        assert_eq!(more, [0, 1, 4, 7, 10, 13, 14, 15]);
    }
}
