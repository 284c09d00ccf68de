use smelt_store::{Catalogue, StoreError};

const GOOD: &str = "[[model]]\nname='m'\ntag='1'\ntitle='M'\nfamily='llama'\nformat='F32'\nlicence='MIT'\nsize=1\n\
    sha256='e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855'\n\
    [[model.source]]\nkind='python'\npackages=['p==1']\nmember='*.gguf'\n";

#[test]
fn the_builtin_catalogue_is_sound() {
    let catalogue = Catalogue::builtin().unwrap();
    assert!(catalogue.models.len() >= 2);
    assert_eq!(catalogue.find("smollm2", None).unwrap().tag, "135m");
    assert_eq!(catalogue.find("gemma3", Some("270m")).unwrap().size, 253_113_024);
    assert!(catalogue.find("gemma3", Some("271m")).is_none());
}

#[test]
fn every_wrong_entry_is_refused_with_its_reason() {
    assert!(Catalogue::parse(GOOD).is_ok());
    let twice = format!("{GOOD}{GOOD}");
    let cases = [
        (GOOD.replace("licence", "license"), "license"),
        (GOOD.replace("kind='python'", "kind='ftp'"), "ftp"),
        (GOOD.replace("member=", "members="), "members"),
        (GOOD.replace("name='m'", "name='../m'"), "can't be used"),
        (GOOD.replace("name='m'", "name='hf'"), "can't be used"),
        (GOOD.replace("tag='1'", "tag=''"), "can't be used"),
        (GOOD.replace("e3b0", "E3B0"), "sha256"),
        (GOOD.replace("e3b0", ""), "sha256"),
        (GOOD.replace("size=1", "size=0"), "size"),
        (GOOD.replace("size=1", "size=-1"), "size"),
        (GOOD.replace("p==1", "p"), "pinned"),
        (GOOD.replace("p==1", "--index-url=x==1"), "pinned"),
        (GOOD.replace("'p==1'", ""), "pinned"),
        (GOOD.replace("*.gguf", "[.gguf"), "glob"),
        (twice, "twice"),
        (GOOD.replace("tag='1'", "tag='1'\nextra=2"), "extra"),
    ];
    for (text, reason) in cases {
        match Catalogue::parse(&text) {
            Err(StoreError::Catalogue { reason: found }) => {
                assert!(found.contains(reason), "{reason}: {found}")
            }
            other => panic!("{reason}: {other:?}"),
        }
    }
}

#[test]
fn a_bare_name_means_the_default_or_the_only_tag() {
    let two = format!("{GOOD}{}", GOOD.replace("tag='1'", "tag='2'"));
    assert_eq!(Catalogue::parse(GOOD).unwrap().find("m", None).unwrap().tag, "1");
    assert!(Catalogue::parse(&two).unwrap().find("m", None).is_none());
    let default = two.replace("tag='2'", "tag='2'\ndefault=true");
    assert_eq!(Catalogue::parse(&default).unwrap().find("m", None).unwrap().tag, "2");
    assert!(Catalogue::parse(&default.replace("tag='1'", "tag='1'\ndefault=true")).is_err());
}
