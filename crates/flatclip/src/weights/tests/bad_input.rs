use super::forge::{
    Tensors, fixture, hugging_face, safetensors, safetensors_of, small, tensors, torch_zip, torch_zip_of, written, zip,
};
use crate::Error;
use crate::weights::{Checkpoint, Dtype, torch_file};
use proptest::prelude::*;
use std::path::PathBuf;
use tempfile::TempDir;

fn file(bytes: &[u8]) -> (TempDir, PathBuf) {
    let folder = TempDir::new().unwrap();
    let path = written(&folder, "weights", bytes);
    (folder, path)
}

/// Opens and reads everything. An error must name the file.
fn read_all(bytes: &[u8]) -> crate::Result<String> {
    let (_folder, path) = file(bytes);
    let read = Checkpoint::open(&path).and_then(|c| c.hash());
    assert!(read.as_ref().err().is_none_or(|e| e.to_string().contains(&path.display().to_string())), "{read:?}");
    read
}

/// The error's text.
fn error(bytes: &[u8]) -> String {
    read_all(bytes).unwrap_err().to_string()
}

fn tiny() -> Tensors {
    tensors(&small())
}

#[test]
fn missing_and_foreign_files_are_called_by_their_names() {
    assert!(matches!(Checkpoint::open("/no/such/file"), Err(Error::Io { .. })));
    for (bytes, word) in [
        (&b""[..], "empty"),
        (b"version https://git-lfs.github.com/spec/v1", "git lfs pull"),
        (b"<!DOCTYPE html>", "HTML"),
        (b"GGUF\x03\0\0\0", "GGUF"),
        (b"\x80\x04\x95", "bare pickle"),
        (b"hello, I am a text file of some length", "not a safetensors file"),
    ] {
        assert!(error(bytes).contains(word), "{}", error(bytes));
    }
    let other = Tensors::from([("model.layers.0.weight".into(), (vec![2], vec![0.0; 2]))]);
    assert!(error(&safetensors(&other)).contains("not a CLIP checkpoint"));
    let folder = TempDir::new().unwrap();
    assert!(Checkpoint::open(folder.path()).unwrap_err().to_string().contains("model.safetensors"));
}

#[test]
fn truncation_anywhere_is_an_error() {
    let jit = std::fs::read(fixture("golden/models/tiny-vit.jit.pt")).unwrap();
    let plain = safetensors_of(&tiny(), Dtype::F16);
    let legacy = std::fs::read(fixture("torch/varied-legacy.pt")).unwrap();
    for cut in [1, 7, 8, 9, 100, 5_000] {
        assert!(read_all(&plain[..cut]).is_err() && read_all(&jit[..cut]).is_err(), "{cut}");
    }
    for cut in [1, 2, 21, 22, 1_000, 100_000] {
        assert!(error(&plain[..plain.len() - cut]).contains("truncated"), "{cut}");
        assert!(read_all(&jit[..jit.len() - cut]).is_err(), "{cut}");
    }
    for cut in 0..legacy.len() {
        let (_folder, path) = file(&legacy[..cut]);
        assert!(torch_file::load(&path).is_err(), "{cut}");
    }
}

#[test]
fn a_flipped_bit_in_an_archive_is_found_by_its_checksum() {
    let good = torch_zip(&tiny(), "", false, false);
    for at in [200, good.len() / 2, good.len() / 3] {
        let mut bytes = good.clone();
        bytes[at] ^= 0x10;
        assert!(error(&bytes).contains("damaged"), "{at}");
    }
    let mut deflated = torch_zip(&tiny(), "", false, true);
    let middle = deflated.len() / 2;
    deflated[middle] ^= 0x10;
    assert!(error(&deflated).contains("damaged") || error(&deflated).contains("unpacks"));
}

#[test]
fn a_flipped_bit_in_a_header_is_never_a_panic() {
    let good = safetensors_of(&tiny(), Dtype::F16);
    for at in 0..4_000 {
        let mut bytes = good.clone();
        bytes[at] ^= 1 << (at % 8);
        // Some flips only change a name that is then missing; all that matters is a result.
        let _ = read_all(&bytes[..]);
    }
}

/// A header as text and its data.
fn container(header: &str, data: usize) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &vec![0; data]].concat()
}

#[test]
fn tensors_must_fill_the_file_without_hole_or_overlap() {
    let tensor = |name: &str, begin: u32, end: u32| {
        format!(r#""{name}":{{"dtype":"F32","shape":[{}],"data_offsets":[{begin},{end}]}}"#, (end - begin) / 4)
    };
    let two = |first: String, second: String| format!("{{{first},{second}}}");
    let read = |header: &str, data: usize| {
        let (_folder, path) = file(&container(header, data));
        crate::weights::safetensors::open(&path).map(|c| c.tensors.len()).map_err(|e| e.to_string())
    };
    assert_eq!(read(&two(tensor("b", 8, 16), tensor("a", 0, 8)), 16), Ok(2));
    assert_eq!(read("{}", 0), Ok(0));
    let duplicate = r#"{"a":{"dtype":"F32","dtype":"F16","shape":[0],"data_offsets":[0,0]}}"#;
    for (header, data, word) in [
        (two(tensor("a", 0, 8), tensor("a", 8, 16)), 16, "`a` is a duplicate"),
        (two(tensor("a", 0, 8), tensor("b", 4, 12)), 12, "overlaps"),
        (two(tensor("a", 0, 8), tensor("b", 0, 8)), 8, "overlaps"),
        (two(tensor("a", 0, 8), tensor("b", 12, 20)), 20, "hole"),
        (two(tensor("a", 4, 8), tensor("b", 8, 16)), 16, "hole"),
        (two(tensor("a", 0, 8), tensor("b", 8, 16)), 17, "leftovers"),
        ("{}".to_owned(), 1, "leftovers"),
        (duplicate.to_owned(), 0, "`dtype` is a duplicate"),
        (r#"{"__metadata__":{"k":1}}"#.to_owned(), 0, "not a text"),
        (r#"{"a":7}"#.to_owned(), 0, "expected an object"),
        ("[]".to_owned(), 0, "expected an object"),
    ] {
        let message = read(&header, data).unwrap_err();
        assert!(message.contains(word), "{header}: {message}");
    }
}

#[test]
fn control_characters_of_names_are_escaped() {
    let other = Tensors::from([("visual.\u{1b}[2J\u{7}conv9".into(), (vec![2], vec![0.0; 2]))]);
    let header = r#"{"\u001b[2Jx":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}}"#;
    let mut extra = tiny();
    extra.extend(other);
    for bytes in [container(header, 8), safetensors(&extra)] {
        let text = error(&bytes);
        assert!(!text.contains('\u{1b}') && text.contains("\\u{1b}[2J"), "{text:?}");
    }
}

#[test]
fn a_wrong_shape_names_tensor_expected_and_found() {
    let mut wrong = tiny();
    wrong.insert("visual.ln_post.weight".into(), (vec![32], vec![1.0; 32]));
    let (_folder, path) = file(&safetensors(&wrong));
    match Checkpoint::open(&path) {
        Err(Error::WeightShape { tensor, expected, found, .. }) => {
            assert_eq!((tensor.as_str(), expected.as_str(), found), ("visual.ln_post.weight", "[64]", vec![32]));
        }
        other => panic!("{other:?}"),
    }
    wrong.insert("visual.positional_embedding".into(), (vec![16, 64], vec![0.0; 16 * 64]));
    let (_folder, path) = file(&safetensors(&wrong));
    assert!(matches!(Checkpoint::open(&path), Err(Error::WeightShape { .. })));
}

#[test]
fn a_missing_or_unknown_tensor_is_named() {
    for lost in
        ["visual.proj", "transformer.resblocks.1.ln_2.bias", "logit_scale", "ln_final.weight", "token_embedding.weight"]
    {
        let mut less = tiny();
        less.remove(lost);
        let text = error(&safetensors(&less));
        assert!(text.contains(&format!("`{lost}` is missing")), "{lost}: {text}");
    }
    let mut more = tiny();
    more.insert("visual.transformer.resblocks.0.ls_1.gamma".into(), (vec![64], vec![1.0; 64]));
    assert!(error(&safetensors(&more)).contains("ls_1.gamma"));
}

#[test]
fn numbers_that_are_not_finite_are_named() {
    for (name, value) in [("visual.proj", f32::NAN), ("ln_final.bias", f32::INFINITY), ("logit_scale", f32::NAN)] {
        let mut bad = tiny();
        bad.get_mut(name).unwrap().1[0] = value;
        let text = error(&safetensors(&bad));
        assert!(text.contains(name) && text.contains("holds"), "{text}");
    }
}

#[test]
fn a_pickle_that_names_os_system_is_refused_by_name() {
    for pickle in [&b"cos\nsystem\n(S'echo hacked'\ntR."[..], b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x02ls\x85R."] {
        let text = error(&torch_zip_of(pickle));
        assert!(text.contains("`os.system`"), "{text}");
    }
    for (module, name) in [("builtins", "eval"), ("torch.hub", "load"), ("subprocess", "Popen"), ("torch", "load")] {
        let text = error(&torch_zip_of(format!("c{module}\n{name}\n(tR.").as_bytes()));
        assert!(text.contains(&format!("`{module}.{name}`")), "{text}");
    }
}

#[test]
fn pickles_that_lie_about_lengths_are_refused() {
    for pickle in [
        &b"X\xff\xff\xff\x7fabc."[..],            // a text of 2 GB
        b"\x8e\xff\xff\xff\xff\xff\xff\xff\x7f.", // bytes of 2^63
        b"\x8b\xff\xff\xff\x7f.",                 // an integer of 2 GB
        b"Nr\xff\xff\xff\xff.",                   // memo slot 2^32
        b"h\x05.",                                // an empty memo slot
        b"t.",                                    // a tuple without its bracket
        b"(((u.",
        b"s.",
        b"\x87.",
        b"N",
        b".",
        b"\xff.",
    ] {
        assert!(read_all(&torch_zip_of(pickle)).is_err(), "{pickle:?}");
    }
    let text = error(&torch_zip_of(&[b'('; 5_000]));
    assert!(text.contains("open brackets"), "{text}");
}

#[test]
fn objects_that_contain_themselves_or_explode_are_refused() {
    // A dictionary that is its own entry.
    assert!(error(&torch_zip_of(b"}q\0X\x01\0\0\0ah\0s.")).contains("nesting"));
    // Twenty lists, each ten times the one before: 10^20 values from 500 bytes.
    let mut pickle = b"]q\0".to_vec();
    for level in 1..=20u8 {
        pickle.extend(b"](");
        (0..10).for_each(|_| pickle.extend([b'h', level - 1]));
        pickle.extend([b'e', b'q', level]);
    }
    pickle.push(b'.');
    assert!(error(&torch_zip_of(&pickle)).contains("limit"));
    // Shared dictionaries are limited by the size of the pickle: each holds the one before ten times.
    let mut pickle = b"}q\0".to_vec();
    for level in 1..20u8 {
        pickle.extend(b"}(");
        for key in 0..10u8 {
            pickle.extend([b'U', 1, b'a' + key, b'h', level - 1]);
        }
        pickle.extend([b'u', b'q', level]);
    }
    pickle.push(b'.');
    let (_folder, path) = file(&torch_zip_of(&pickle));
    match torch_file::load(&path) {
        Err(Error::Limit { allowed, .. }) => assert!(allowed < 10_000, "{allowed}"),
        other => panic!("{:?}", other.err()),
    }
}

#[test]
fn tensors_beyond_their_storage_are_refused() {
    let tensor = |elements: u8, shape: &[u8], strides: &[u8]| {
        let mut pickle = b"}X\x0c\0\0\0visual.conv1ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpuK".to_vec();
        pickle.push(elements);
        pickle.extend(b"tQK\0(");
        shape.iter().for_each(|&d| pickle.extend([b'K', d]));
        pickle.extend(b"t(");
        strides.iter().for_each(|&d| pickle.extend([b'K', d]));
        pickle.extend(b"t\x89)tRs.");
        let entries = [("a/data.pkl".into(), pickle, false), ("a/data/0".into(), vec![0; 16], false)];
        let (_folder, path) = file(&zip(&entries, |_, len| len));
        torch_file::load(&path).and_then(|value| value.tensors()[0].values()).map_err(|e| e.to_string())
    };
    assert_eq!(tensor(4, &[2, 2], &[2, 1]), Ok(vec![0.0; 4]));
    assert!(tensor(5, &[2, 2], &[2, 1]).unwrap_err().contains("claims 5 numbers"));
    assert!(tensor(4, &[2, 3], &[3, 1]).unwrap_err().contains("storage of 16 bytes"));
    assert!(tensor(4, &[200, 200, 200, 200], &[0, 0, 0, 0]).unwrap_err().contains("overlaps"));
    assert!(tensor(4, &[2, 2], &[2]).is_err());
    assert!(tensor(4, &[255; 40], &[255; 40]).is_err());
}

#[test]
fn zip_bombs_and_false_lengths_are_refused() {
    let bomb = vec![0; 8 << 20];
    let text = error(&zip(&[("a/data.pkl".into(), bomb, true)], |_, len| len));
    assert!(text.contains("zip bomb"), "{text}");
    let noise: Vec<u8> = (0..100_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    for claim in [10, u32::MAX - 1] {
        let text = error(&zip(&[("a/data.pkl".into(), noise.clone(), true)], |_, _| claim));
        assert!(text.contains("unpack") || text.contains("limit"), "{text}");
    }
    let text = error(&zip(&[("a/data.pkl".into(), noise, false)], |_, _| 99));
    assert!(text.contains("two lengths"), "{text}");
    assert!(error(&zip(&[("a.txt".into(), vec![1], false)], |_, len| len)).contains("no data.pkl"));
}

#[test]
fn a_header_that_claims_more_than_the_file_has_allocates_nothing() {
    for claim in [u64::MAX, 1 << 40, 100] {
        assert!(error(&[&claim.to_le_bytes()[..], b"{}"].concat()).contains("claims"));
    }
    for header in [
        r#"{"visual.x":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,16]}}"#,
        r#"{"visual.x":{"dtype":"F32","shape":[1000000000],"data_offsets":[0,4000000000]}}"#,
        r#"{"visual.x":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}}"#,
        r#"{"visual.x":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}"#,
        r#"{"visual.x":{"dtype":"Q4","shape":[1],"data_offsets":[0,4]}}"#,
        r#"{"visual.x":7}"#,
        "[1]",
        "{",
    ] {
        assert!(error(&container(header, 0)).contains("safetensors"), "{header}");
    }
}

#[test]
fn configurations_that_cannot_be_honoured_are_refused() {
    let folder = TempDir::new().unwrap();
    written(&folder, "model.safetensors", safetensors(&hugging_face(&tiny())));
    for (config, word) in [
        (r#"{"hidden_act": "relu"}"#, "relu"),
        (r#"{"layer_norm_eps": 0.5}"#, "epsilon"),
        (r#"{"num_attention_heads": 3}"#, "heads"),
        (r#"{"num_attention_heads": -1}"#, "heads"),
        ("{", "not JSON"),
    ] {
        written(&folder, "config.json", config);
        let text = Checkpoint::open(folder.path()).unwrap_err().to_string();
        assert!(text.contains(word), "{text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = read_all(&bytes);
        let _ = read_all(&torch_zip_of(&bytes));
        let _ = read_all(&[&(bytes.len() as u64).to_le_bytes()[..], &bytes].concat());
    }

    #[test]
    fn random_opcodes_never_panic(ops in prop::collection::vec(prop::sample::select(
        b"()]}NtuseabRQq\0h\0K\x01X\0\0\0\0cdl012\x81\x85\x86\x87\x88\x93\x94.".to_vec()), 0..200)) {
        let _ = read_all(&torch_zip_of(&ops));
    }

    #[test]
    fn flipped_bytes_of_a_torch_file_never_panic(at in 0usize..1_600, bit in 0u8..8) {
        for name in ["torch/varied.pt", "torch/varied-legacy.pt"] {
            let mut bytes = std::fs::read(fixture(name)).unwrap();
            let at = at % bytes.len();
            bytes[at] ^= 1 << bit;
            let (_folder, path) = file(&bytes);
            if let Ok(value) = torch_file::load(&path) {
                for tensor in value.tensors() {
                    let _ = tensor.values();
                }
            }
        }
    }
}
