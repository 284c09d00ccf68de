//! What the writer writes, the reader reads.

use fastrand::Rng;
use smelt_checkpoint::{Array, Checkpoint, GgufWriter, Value};
use smelt_quant::{FORMATS, Format};

/// A file's content: the input of the writer and what the reader must give back.
struct Content {
    pairs: Vec<(String, Value)>,
    tensors: Vec<(String, &'static Format, Vec<usize>, Vec<u8>)>,
}

fn text(rng: &mut Rng) -> String {
    (0..rng.usize(0..12)).map(|_| rng.char(..)).collect()
}

fn several<T>(rng: &mut Rng, mut one: impl FnMut(&mut Rng) -> T) -> Vec<T> {
    (0..rng.usize(0..40)).map(|_| one(rng)).collect()
}

fn scalar(rng: &mut Rng) -> Value {
    match rng.u8(0..12) {
        0 => rng.u8(..).into(),
        1 => rng.i8(..).into(),
        2 => rng.u16(..).into(),
        3 => rng.i16(..).into(),
        4 => rng.u32(..).into(),
        5 => rng.i32(..).into(),
        6 => rng.f32().into(),
        7 => rng.bool().into(),
        8 => text(rng).into(),
        9 => rng.u64(..).into(),
        10 => rng.i64(..).into(),
        _ => rng.f64().into(),
    }
}

fn array(rng: &mut Rng) -> Value {
    match rng.u8(0..12) {
        0 => several(rng, |r| r.u8(..)).into(),
        1 => several(rng, |r| r.i8(..)).into(),
        2 => several(rng, |r| r.u16(..)).into(),
        3 => several(rng, |r| r.i16(..)).into(),
        4 => several(rng, |r| r.u32(..)).into(),
        5 => several(rng, |r| r.i32(..)).into(),
        6 => several(rng, Rng::f32).into(),
        7 => several(rng, Rng::bool).into(),
        8 => several(rng, text).into(),
        9 => several(rng, |r| r.u64(..)).into(),
        10 => several(rng, |r| r.i64(..)).into(),
        _ => several(rng, Rng::f64).into(),
    }
}

fn content(rng: &mut Rng) -> Content {
    let mut pairs: Vec<_> = (0..rng.usize(0..20))
        .map(|n| (format!("key.{n}.{}", text(rng)), if rng.bool() { scalar(rng) } else { array(rng) }))
        .collect();
    if rng.bool() {
        pairs.push(("general.alignment".to_owned(), (1_u32 << rng.u32(0..13)).into()));
    }
    let tensors = (0..rng.usize(0..12)).map(|n| {
        let format = *rng.choice(FORMATS).unwrap();
        let mut shape: Vec<usize> = (0..rng.usize(0..5)).map(|_| rng.usize(1..4)).collect();
        match shape.first_mut() {
            Some(row) => *row *= format.block_len,
            // A single value can only be a format without blocks.
            None if format.block_len > 1 => shape.push(format.block_len),
            None => {}
        }
        let len = format.row_bytes(shape.iter().product()).unwrap();
        let data = std::iter::repeat_with(|| rng.u8(..)).take(len).collect();
        (format!("blk.{n}"), format, shape, data)
    });
    let tensors = tensors.collect();
    Content { pairs, tensors }
}

fn write(content: &Content, rng: &mut Rng) -> Vec<u8> {
    let mut writer = GgufWriter::new();
    for (key, value) in &content.pairs {
        writer.set(key, value.clone()).unwrap();
    }
    for (name, format, shape, _) in &content.tensors {
        writer.tensor(name, format, shape).unwrap();
    }
    let mut data = writer.start(Vec::new()).unwrap();
    for (name, _, _, bytes) in &content.tensors {
        bytes.chunks(rng.usize(1..bytes.len() + 1)).for_each(|chunk| data.append(name, chunk).unwrap());
    }
    data.finish().unwrap()
}

#[test]
fn random_files_come_back() {
    for seed in 0..400 {
        let mut rng = Rng::with_seed(seed);
        let content = content(&mut rng);
        let file = write(&content, &mut rng);
        let read = Checkpoint::from_bytes(file.clone()).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        let pairs: Vec<_> = read.metadata().iter().map(|(k, v)| (k.to_owned(), v.clone())).collect();
        assert_eq!(pairs, content.pairs, "seed {seed}");
        assert_eq!(read.tensors().len(), content.tensors.len(), "seed {seed}");
        for (info, (name, format, shape, bytes)) in read.tensors().zip(&content.tensors) {
            assert_eq!((&info.name, info.format, &info.shape), (name, *format, shape), "seed {seed}");
            assert_eq!(&*read.require(name).unwrap().bytes, bytes.as_slice(), "seed {seed}");
        }
        // Writing what was read gives the same bytes.
        let again = Content {
            pairs,
            tensors: read
                .tensors()
                .map(|t| {
                    let bytes = read.require(&t.name).unwrap().bytes.to_vec();
                    (t.name.clone(), t.format, t.shape.clone(), bytes)
                })
                .collect(),
        };
        assert_eq!(write(&again, &mut rng), file, "seed {seed}");
    }
}

#[test]
fn tensors_in_a_map_are_aligned() {
    let f32 = smelt_quant::by_name("f32").unwrap();
    let mut writer = GgufWriter::new();
    writer.set("general.alignment", 128_u32).unwrap();
    ["a", "b"].iter().for_each(|name| writer.tensor(name, f32, &[3]).unwrap());
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut data = writer.start(file.as_file()).unwrap();
    ["a", "b"].iter().for_each(|name| data.append(name, &[1; 12]).unwrap());
    data.finish().unwrap();
    let checkpoint = Checkpoint::open(file.path()).unwrap();
    for info in checkpoint.tensors() {
        assert_eq!(checkpoint.require(&info.name).unwrap().bytes.as_ptr().align_offset(128), 0);
    }
}

#[test]
fn a_second_value_replaces_the_first() {
    let mut writer = GgufWriter::new();
    writer.set("a", 1_u32).unwrap();
    writer.set("b", 2_u32).unwrap();
    writer.set("a", "three").unwrap();
    let file = writer.start(Vec::new()).unwrap().finish().unwrap();
    let read = Checkpoint::from_bytes(file).unwrap();
    let pairs: Vec<_> = read.metadata().iter().collect();
    assert_eq!(pairs, [("a", &Value::from("three")), ("b", &Value::from(2_u32))]);
}

#[test]
fn what_no_reader_takes_is_not_written() {
    let f32 = smelt_quant::by_name("f32").unwrap();
    let q8_0 = smelt_quant::by_name("q8_0").unwrap();
    let mut writer = GgufWriter::new();
    writer.tensor("t", f32, &[1]).unwrap();
    let errors = [
        (writer.set("", 1_u32), "key \"\": the key is empty"),
        (writer.set(&"k".repeat(65536), 1_u32), "the key is 65536 bytes long; GGUF allows 65535"),
        (writer.set("general.alignment", 24_u32), "the alignment must be a power of two, not 24"),
        (writer.set("general.alignment", 32_u64), "the alignment must be a u32, not u64"),
        (writer.tensor("t", f32, &[1]), "tensor \"t\": appears twice"),
        (writer.tensor(&"t".repeat(65), f32, &[1]), "the tensor name is 65 bytes long; GGUF allows 64"),
        (writer.tensor("u", f32, &[1, 1, 1, 1, 1]), "5 dimensions; GGUF allows at most 4"),
        (writer.tensor("u", f32, &[1, 0]), "dimension 1 is 0"),
        (writer.tensor("u", q8_0, &[16, 2]), "rows of 16 values cannot be Q8_0"),
        (writer.tensor("u", f32, &[1 << 32, 1 << 32]), "has more values or bytes than 63 bits"),
    ];
    for (result, expected) in errors {
        let error = result.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}: expected {expected}");
    }
}

#[test]
fn data_must_match_the_plan() {
    let f32 = smelt_quant::by_name("f32").unwrap();
    let start = || {
        let mut writer = GgufWriter::new();
        writer.tensor("a", f32, &[2]).unwrap();
        writer.tensor("b", f32, &[1]).unwrap();
        writer.start(Vec::new()).unwrap()
    };
    let error = start().append("b", &[0; 4]).unwrap_err().to_string();
    assert!(error.contains("data of tensor \"b\" came when it was the turn of \"a\""), "{error}");
    let mut data = start();
    data.append("a", &[0; 6]).unwrap();
    let error = data.append("a", &[0; 3]).unwrap_err().to_string();
    assert!(error.contains("tensor \"a\" takes 8 bytes, not 9"), "{error}");
    let error = data.finish().unwrap_err().to_string();
    assert!(error.contains("tensor \"a\" takes 8 bytes, not 6"), "{error}");
    let mut data = start();
    data.append("a", &[0; 8]).unwrap();
    data.append("b", &[0; 4]).unwrap();
    let error = data.append("b", &[]).unwrap_err().to_string();
    assert!(error.contains("the turn of \"the end\""), "{error}");
}

#[test]
fn array_lengths_are_told() {
    assert!(Array::String(Vec::new()).is_empty());
    assert_eq!(Array::Bool(vec![true; 3]).len(), 3);
    assert_eq!(Value::from(vec![1.5_f32]).type_name(), "array of f32");
}
