//! Any bytes: the reader returns a checkpoint whose tensors lie within them, or an error that can be printed.

#![no_main]

use libfuzzer_sys::fuzz_target;
use smelt_checkpoint::Checkpoint;

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
});
