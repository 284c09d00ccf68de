//! Any bytes: the reader returns a checkpoint whose tensors lie within them, or an error that can be printed. What it
//! reads, the writer can write and the reader reads again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use smelt_checkpoint::{Checkpoint, Error, GgufWriter};

fuzz_target!(|bytes: &[u8]| {
    let checkpoint = match Checkpoint::from_bytes(bytes.to_vec()) {
        Ok(checkpoint) => checkpoint,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    assert_eq!(checkpoint.file_bytes(), bytes.len() as u64);
    assert!(checkpoint.tensor_bytes() <= checkpoint.file_bytes());
    for info in checkpoint.tensors() {
        let tensor = checkpoint.require(&info.name).expect("a listed tensor is found by its name");
        assert_eq!(tensor.bytes.len(), info.byte_len);
        assert_eq!(info.format.row_bytes(info.shape.iter().product()), Some(info.byte_len));
    }
    let metadata = checkpoint.metadata();
    for (key, value) in metadata.iter() {
        assert_eq!(metadata.get(key).map(|v| v.type_id()), Some(value.type_id()));
        // Whatever the type, the getters answer or say what is wrong.
        let errors = [
            metadata.u32(key).err(),
            metadata.f32(key).err(),
            metadata.str(key).err(),
            metadata.u32_array(key).err(),
            metadata.str_array(key).err(),
        ];
        assert!(errors.into_iter().flatten().all(|error| error.to_string().contains("must be")));
    }
    checkpoint.check_intact().expect("memory does not shrink");

    // An alignment of gigabytes is valid, but would be written out as padding.
    if metadata.u32("general.alignment").is_ok_and(|alignment| alignment.is_none_or(|a| a <= 4096)) {
        let file = rewrite(&checkpoint).expect("what was read can be written");
        let again = Checkpoint::from_bytes(file).expect("what was written can be read");
        // Through text, for NaN is not equal to itself.
        let pairs =
            |checkpoint: &Checkpoint| format!("{:?}", checkpoint.metadata().iter().collect::<Vec<_>>());
        assert_eq!(pairs(&checkpoint), pairs(&again));
        assert_eq!(checkpoint.tensors().len(), again.tensors().len());
        for (a, b) in checkpoint.tensors().zip(again.tensors()) {
            assert_eq!((&a.name, a.format, &a.shape), (&b.name, b.format, &b.shape));
            let bytes = |checkpoint: &Checkpoint| checkpoint.require(&a.name).expect("listed").bytes;
            assert_eq!(*bytes(&checkpoint), *bytes(&again));
        }
    }
});

fn rewrite(checkpoint: &Checkpoint) -> Result<Vec<u8>, Error> {
    let mut writer = GgufWriter::new();
    for (key, value) in checkpoint.metadata().iter() {
        writer.set(key, value.clone())?;
    }
    for info in checkpoint.tensors() {
        writer.tensor(&info.name, info.format, &info.shape)?;
    }
    let mut data = writer.start(Vec::new())?;
    for info in checkpoint.tensors() {
        data.append(&info.name, &checkpoint.require(&info.name)?.bytes)?;
    }
    data.finish()
}
