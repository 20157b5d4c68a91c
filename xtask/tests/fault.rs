//! The harness of `cargo xtask fault` finds what is planted in it: a wrong result, a panic, an abort, a memory bomb, a
//! hang, a test that tries nothing. A test that says why it cannot run is skipped: neither passed nor failed.

use serde_json::Value;
use std::process::Command;

#[test]
fn planted_faults_are_found_and_named() {
    let output = Command::new(env!("CARGO_BIN_EXE_xtask")).args(["fault", "planted"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let row = |name: &str| rows.iter().find(|row| row["test"] == format!("planted-{name}")).unwrap();
    assert_eq!(output.status.code(), Some(2), "{text}");

    let none = row("none");
    assert_eq!((none["tried"].as_u64(), none["passed"].as_u64()), (Some(10), Some(10)));
    assert_eq!(none["failures"].as_array().map(Vec::len), Some(0));
    assert!(none["peak_mb"].as_u64() > Some(0) && none["notes"]["largest"] == 7, "{none}");

    let found = [
        ("wrong", "number 2: another result"),
        ("panic", "index: panicked: index out of bounds"),
        ("abort", "abort: the test's process ended"),
        ("bomb", "bomb: the test's process ended"),
        ("hang", "sleep: no answer within 5 s"),
        ("nothing", ""),
    ];
    for (name, reason) in found {
        let row = row(name);
        let failures = row["failures"].as_array().unwrap();
        assert!(failures.first().is_none_or(|failure| failure.as_str().unwrap().starts_with(reason)), "{row}");
        assert!(failures.len() == usize::from(!reason.is_empty()), "{row}");
        assert!(row["tried"] == 0 || row["passed"].as_u64() < row["tried"].as_u64(), "{row}");
    }
    let skip = row("skip");
    assert_eq!((skip["skipped"].as_str(), skip["tried"].as_u64()), (Some("not on this machine"), Some(0)), "{skip}");
    assert_eq!(row("panic")["tried"], 3, "cases after a panic go on");
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("6 of 8 tests failed") && error.contains("1 of 8 tests were skipped"), "{error}");
    assert!(error.contains("skipped  planted-skip: not on this machine"), "{error}");
}
