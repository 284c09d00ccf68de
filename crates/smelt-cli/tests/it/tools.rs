use serde_json::Value;
use smelt_testdata::{Npz, compare_logits, data, json};

use crate::support::{changed, llama, run};

#[test]
fn tokenize_gives_the_references_ids_and_back() {
    let model = llama();
    let model = model.to_str().unwrap();
    let reference = json("tiny/llama/ref.json");
    let (prompt, ids) = (reference["prompt"].as_str().unwrap(), &reference["input_ids"]);
    let list = run(&["tokenize", model, "--ids"], prompt).ok();
    assert_eq!(serde_json::from_str::<Value>(&list).unwrap(), *ids);
    assert_eq!(run(&["tokenize", model, "--decode"], &list).ok(), format!("{prompt}\n"));
    let bare: Value =
        serde_json::from_str(&run(&["tokenize", model, "--ids", "--no-bos", prompt], "").ok()).unwrap();
    assert_eq!(bare.as_array().unwrap()[..], ids.as_array().unwrap()[1..]);
    let as_json: Value = serde_json::from_str(&run(&["tokenize", model, "--json", prompt], "").ok()).unwrap();
    assert_eq!(as_json["count"], ids.as_array().unwrap().len());
    assert_eq!(
        (&as_json["tokens"][0]["id"], &as_json["tokens"][0]["special"]),
        (&ids[0], &Value::from(true))
    );
    assert!(run(&["tokenize", model, "a"], "").ok().starts_with("      1  \"<s>\"\n"));
}

#[test]
fn tokenize_renders_a_chat() {
    let folder = tempfile::tempdir().unwrap();
    let template =
        "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{{ eos_token }}";
    let model = changed(folder.path(), &[("tokenizer.chat_template", template.into())]);
    let as_json: Value =
        serde_json::from_str(&run(&["tokenize", &model, "--chat", "--json", "</s>a"], "").ok()).unwrap();
    let tokens = as_json["tokens"].as_array().unwrap();
    let special: Vec<u64> =
        tokens.iter().filter(|t| t["special"] == true).map(|t| t["id"].as_u64().unwrap()).collect();
    // What the template wrote; the user's is text.
    assert_eq!(special, [1, 2]);
    let ids: Vec<String> = tokens.iter().map(|t| t["id"].to_string()).collect();
    let text = run(&["tokenize", &model, "--decode", "--special", &ids.join(",")], "").ok();
    assert!(text.contains("<user>") && text.contains("</s>a") && text.ends_with("</s>\n"), "{text:?}");
    run(&["tokenize", &model, "--chat", "--no-bos", "a"], "").failed(2, "--no-bos");
}

#[test]
fn tokenize_takes_control_tokens_only_when_told() {
    let model = llama();
    let model = model.to_str().unwrap();
    assert_eq!(run(&["tokenize", model, "--ids", "--no-bos", "--special", "</s>"], "").ok(), "[2]\n");
    assert_ne!(run(&["tokenize", model, "--ids", "--no-bos", "</s>"], "").ok(), "[2]\n");
    assert_eq!(run(&["tokenize", model, "--decode", "--special", "2"], "").ok(), "</s>\n");
    assert_eq!(run(&["tokenize", model, "--decode", "2"], "").ok(), "\n");
    run(&["tokenize", model, "--decode", "512"], "").failed(2, "from 0 to 511");
}

/// What llama-bench prints with `-o json`, in its order.
const LLAMA_BENCH: &[&str] = &[
    "build_commit",
    "build_number",
    "cpu_info",
    "gpu_info",
    "backends",
    "model_filename",
    "model_type",
    "model_size",
    "model_n_params",
    "n_batch",
    "n_ubatch",
    "n_threads",
    "cpu_mask",
    "cpu_strict",
    "poll",
    "type_k",
    "type_v",
    "n_gpu_layers",
    "n_cpu_moe",
    "split_mode",
    "main_gpu",
    "no_kv_offload",
    "flash_attn",
    "devices",
    "tensor_split",
    "tensor_buft_overrides",
    "load_mode",
    "lazy_mode",
    "embeddings",
    "no_op_offload",
    "no_host",
    "repack",
    "fit_target",
    "fit_min_ctx",
    "n_prompt",
    "n_gen",
    "n_depth",
    "test_time",
    "avg_ns",
    "stddev_ns",
    "avg_ts",
    "stddev_ts",
    "samples_ns",
    "samples_ts",
];

#[test]
fn bench_speaks_llama_benchs_json() {
    let model = llama();
    let args = [
        "bench",
        model.to_str().unwrap(),
        "-p",
        "8,16",
        "-n",
        "4",
        "-d",
        "0,32",
        "-r",
        "2",
        "-t",
        "1",
        "-ctk",
        "q8_0",
        "--cache-type-v",
        "q4_0",
        "--json",
    ];
    let records: Vec<Value> = serde_json::from_str(&run(&args, "").ok()).unwrap();
    let tests: Vec<[u64; 3]> = records
        .iter()
        .map(|r| ["n_prompt", "n_gen", "n_depth"].map(|key| r[key].as_u64().unwrap()))
        .collect();
    assert_eq!(tests, [[8, 0, 0], [16, 0, 0], [0, 4, 0], [8, 0, 32], [16, 0, 32], [0, 4, 32]]);
    for record in &records {
        let samples: Vec<f64> =
            record["samples_ts"].as_array().unwrap().iter().map(|ts| ts.as_f64().unwrap()).collect();
        assert_eq!((samples.len(), record["samples_ns"].as_array().unwrap().len()), (2, 2));
        let mean = f64::midpoint(samples[0], samples[1]);
        assert!((record["avg_ts"].as_f64().unwrap() - mean).abs() <= 1e-9 * mean, "{record}");
        assert!(record["stddev_ts"].as_f64().unwrap() >= 0.0 && record["avg_ns"].as_u64().unwrap() > 0);
        assert_eq!(
            (&record["model_n_params"], &record["n_threads"]),
            (&Value::from(139_584), &Value::from(1))
        );
        assert_eq!(record["model_type"], "llama 140K F32");
        assert_eq!((&record["type_k"], &record["type_v"]), (&Value::from("q8_0"), &Value::from("q4_0")));
        let keys: Vec<&str> = record.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(keys[..LLAMA_BENCH.len()], *LLAMA_BENCH);
        for (key, value) in record.as_object().unwrap() {
            let text_is_there = value.as_str().is_none_or(|text| !text.is_empty() || key == "gpu_info");
            assert!(!value.is_null() && text_is_there, "{key} is missing: {record}");
        }
    }
}

#[test]
fn bench_times_sequences_together_and_the_machine() {
    let model = llama();
    let args = ["-p", "0", "-n", "4", "-d", "3", "-r", "1", "-t", "1", "--parallel", "9", "--machine-limits"];
    let args = [&["bench", model.to_str().unwrap(), "--json"], args.as_slice()].concat();
    let records: Vec<Value> = serde_json::from_str(&run(&args, "").ok()).unwrap();
    let [record] = records.as_slice() else { panic!("one test, not {}", records.len()) };
    assert_eq!((&record["n_gen"], &record["n_parallel"]), (&Value::from(4), &Value::from(9)));
    // Tokens of all sequences count.
    let (rate, time) = (record["samples_ts"][0].as_f64().unwrap(), record["samples_ns"][0].as_f64().unwrap());
    assert!((rate * time / 1e9 - 36.0).abs() < 1e-6, "{record}");
    for key in ["read_gb_per_s", "int8_gmac_per_s", "f32_gmac_per_s"] {
        assert!(record["machine"][key].as_f64().unwrap() > 0.0, "{key}: {record}");
    }
}

#[test]
fn bench_prints_a_table() {
    let model = llama();
    let table = run(&["bench", model.to_str().unwrap(), "-p", "8", "-n", "4", "-r", "2", "-t", "1"], "").ok();
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 4, "{table}");
    let width = lines[0].chars().count();
    assert!(lines.iter().all(|line| line.chars().count() == width && line.starts_with("| ")), "{table}");
    assert!(lines[2].contains(" pp8 ") && lines[3].contains(" tg4 "), "{table}");
    run(&["bench", model.to_str().unwrap(), "-p", "0", "-n", "0"], "").failed(2, "nothing to measure");
}

#[test]
fn eval_logits_writes_the_references() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("logits.npy");
    let reference = Npz::open("tiny/llama/ref.npz");
    let ids = reference.i32("input_ids").values;
    let tokens = ids.iter().map(i32::to_string).collect::<Vec<_>>().join(",");
    let model = llama();
    for (backend, kl, max) in [("reference", 1e-6, 1e-4), ("cpu", 1e-6, 1e-3)] {
        let args = [
            "eval",
            "logits",
            model.to_str().unwrap(),
            "--backend",
            backend,
            "--tokens",
            // As people write lists.
            &tokens.replace(',', ", "),
            "--out",
            file.to_str().unwrap(),
        ];
        assert_eq!(run(&args, "").ok(), "");
        let array =
            npyz::NpyFile::new(std::fs::File::open(&file).map(std::io::BufReader::new).unwrap()).unwrap();
        assert_eq!(array.shape(), [ids.len() as u64, 512]);
        let found: Vec<f32> = array.into_vec().unwrap();
        let right = reference.f32("logits");
        for (row, position) in reference.i32("positions").values.iter().enumerate() {
            let difference = compare_logits(&found[*position as usize * 512..][..512], right.row(row));
            assert!(difference.kl <= kl && difference.max <= max, "{backend}, {position}: {difference:?}");
        }
    }
    run(
        &["eval", "logits", model.to_str().unwrap(), "--tokens", "1,512", "--out", file.to_str().unwrap()],
        "",
    )
    .failed(2, "512");
}

#[test]
fn eval_perplexity_agrees_between_backends() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text.txt");
    let prompt = json("tiny/llama/ref.json")["prompt"].as_str().unwrap().to_owned();
    std::fs::write(&text, format!("{prompt}\n").repeat(4)).unwrap();
    let model = data("tiny/llama/llama-f16.gguf");
    let perplexity = |backend: &str, more: &[&str]| {
        let fixed = [
            "eval",
            "perplexity",
            model.to_str().unwrap(),
            text.to_str().unwrap(),
            "--ctx",
            "64",
            "--backend",
            backend,
        ];
        run(&[&fixed[..], more].concat(), "").ok()
    };
    let exact: Value = serde_json::from_str(&perplexity("reference", &["--json"])).unwrap();
    let fast: Value = serde_json::from_str(&perplexity("cpu", &["--json"])).unwrap();
    assert_eq!((&exact["ctx"], &exact["tokens"]), (&Value::from(64), &fast["tokens"]));
    let [exact, fast] = [exact, fast].map(|v| v["perplexity"].as_f64().unwrap());
    assert!((exact / fast - 1.0).abs() < 1e-3, "{exact} and {fast}");
    let line = perplexity("cpu", &["--chunks", "2"]);
    assert!(line.starts_with("Final estimate: PPL = ") && line.contains(" +/- "), "{line}");
    let one: Value = serde_json::from_str(&perplexity("cpu", &["--chunks", "1", "--json"])).unwrap();
    assert_eq!(one["chunks"], 1);
    run(&["eval", "perplexity", model.to_str().unwrap(), text.to_str().unwrap(), "--ctx", "4000"], "")
        .failed(1, "text.txt: the text has ");
    run(&["eval", "logits", model.to_str().unwrap(), "--tokens", "1,-2", "--out", "x.npy"], "")
        .failed(2, "a token id is a whole number");
}

#[cfg(unix)]
#[test]
fn eval_logits_leaves_devices_and_the_model_alone() {
    let model = data("tiny/llama/llama-f16.gguf");
    let model = model.to_str().unwrap();
    run(&["eval", "logits", model, "--tokens", "1,2", "--out", "/dev/null"], "").ok();
    assert!(!std::fs::metadata("/dev/null").unwrap().is_file());
    let bytes = std::fs::metadata(model).unwrap().len();
    run(&["eval", "logits", model, "--tokens", "1,2", "--out", model], "").failed(2, "is the model itself");
    assert_eq!(std::fs::metadata(model).unwrap().len(), bytes);
}

#[test]
fn show_tells_what_keys_and_values_take() {
    // Two layers of two KV heads of 16 keys and 16 values, for 2,048 tokens.
    let model = llama();
    let model = model.to_str().unwrap();
    let cases: [(&[&str], u64); 4] = [
        (&[], 2 * 2 * (32 + 32)),
        (&["--cache-type", "f32"], 2 * 2 * (64 + 64)),
        (&["-ctk", "q8_0"], 2 * 2 * (34 + 32)),
        (&["-ctk", "q8_0", "-ctv", "q4_0"], 2 * 2 * (34 + 18)),
    ];
    for (flags, per_token) in cases {
        let shown = run(&[&["show", model, "--json"], flags].concat(), "").ok();
        let cache = &serde_json::from_str::<Value>(&shown).unwrap()["cache"];
        assert_eq!(cache["bytes_per_token"], per_token, "{flags:?}: {cache}");
        assert_eq!((&cache["context"], &cache["bytes"]), (&2048.into(), &(2048 * per_token).into()));
    }
    let shown = run(&["show", model, "-ctk", "q8_0"], "").ok();
    assert!(
        shown.contains("cache             264 B a token in q8_0 and f16, 540.67 kB for 2048 tokens\n"),
        "{shown}"
    );
}
