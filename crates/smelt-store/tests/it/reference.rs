use smelt_store::{Reference, StoreError};

#[test]
fn every_form_is_read_and_printed() {
    for text in [
        "smollm2",
        "smollm2:135m",
        "qwen3:0.6b-q4_k_m",
        "./a.gguf",
        "../a.gguf",
        "/m/a.gguf",
        "a.gguf",
        "dir/a.GGUF",
        "hf:o/r/a.gguf",
        "hf:o/r/sub/a b.gguf@refs/pr/1",
        "https://example.org/a.gguf?x=1",
        "http://10.0.0.1:80/a.gguf",
        "https://example.org/a.gguf#sha256=0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
    ] {
        let read = Reference::parse(text).unwrap();
        let printed = read.to_string();
        assert_eq!(Reference::parse(&printed).unwrap(), read, "{text}");
    }
    assert_eq!(Reference::parse("hf:o/r/a.gguf@main").unwrap().to_string(), "hf:o/r/a.gguf");
    assert!(matches!(Reference::parse("dir/x").unwrap(), Reference::Path(_)));
}

#[test]
fn what_is_no_reference_is_refused() {
    for text in [
        "",
        ":",
        "a:",
        ":a",
        "a:b:c",
        "-a",
        "a b",
        "hf:",
        "hf:o",
        "hf:o/r",
        "hf:o/r/",
        "hf:o/../a.gguf",
        "hf:o/r/../a.gguf",
        "hf:o/r/a.gguf@",
        "hf:o/r/a.gguf@../x",
        "hf:o/r/a\\b.gguf",
        "ftp://example.org/a.gguf",
        "file:///a.gguf",
        "https://",
        "https://example.org/a.gguf#top",
        "https://example.org/a.gguf#sha256=ABC",
    ] {
        let found = Reference::parse(text);
        assert!(matches!(found, Err(StoreError::BadReference { .. })), "{text:?}: {found:?}");
    }
}
